/* stats_page.h - the layout of hakmem's statistics in memory, for other processes that read them without the help of the process
 * and while it runs.
 *
 * A struct hak_page lies in the writable or relocated data of the library, or of the program that was linked with it, at a
 * multiple of 16 bytes. It begins with HAK_PAGE_MAGIC, and its member self is its own address: other places that hold the magic
 * are not a page. It leads to tables of records of numbers. Each table gives the name, place and size of its numbers, so a
 * reader needs this header and nothing else of hakmem. docs/statistics.md lists the tables and explains the numbers.
 *
 * All addresses belong to the process that is read (process_vm_readv(2), /proc/PID/mem). Numbers are little-endian, as the
 * machine is. Each number is written atomically; two of them may be of different moments. Nothing here is ever unmapped. Records
 * of linked tables are added and never removed: those of outside_parts at the end, all others at the front.
 *
 * A reader accepts every page of its version_major. A greater version_minor has more tables or fields. Until 0.1.0 is released,
 * the page may change under the same version. */
#ifndef HAKMEM_STATS_PAGE_H
#define HAKMEM_STATS_PAGE_H

#include <stdint.h>

#define HAK_PAGE_MAGIC "hakmem\0\xb2\x1c" "books\x7f" /* 15 bytes and the final 0 */
#define HAK_PAGE_VERSION_MAJOR 1
#define HAK_PAGE_VERSION_MINOR 1

enum hak_page_kind {
    HAK_PAGE_GAUGE,   /* the current value */
    HAK_PAGE_COUNTER, /* only grows */
    HAK_PAGE_ADDRESS, /* of memory */
    HAK_PAGE_STRING,  /* address of a string that ends with a 0; 0: none */
    HAK_PAGE_NUMBER   /* a constant */
};

struct hak_page_field {
    char name[24];
    uint32_t offset; /* in its record */
    uint16_t bytes;  /* 1, 2, 4 or 8; unsigned */
    uint16_t kind;   /* an enum hak_page_kind */
};

enum hak_page_place {
    HAK_PAGE_ARRAY,    /* COUNT records from ADDRESS on */
    HAK_PAGE_LIST,     /* ADDRESS holds the address of the first record, or 0; each holds that of the next at NEXT */
    HAK_PAGE_POINTED,  /* ADDRESS holds the address of the first record; their number is given elsewhere. ADDRESS 0: their place
                        * is given elsewhere, too */
    HAK_PAGE_INSIDE    /* in each record of the list or array PARENT, COUNT records from byte ADDRESS on */
};

struct hak_page_table {
    char name[16];
    uint64_t address;
    const struct hak_page_field *fields;
    uint32_t field_count;
    uint32_t place;        /* an enum hak_page_place */
    uint32_t record_bytes; /* from one record to the next */
    uint32_t count;
    uint32_t next;
    uint32_t parent;       /* index of a table, from 0 */
};

struct hak_page {
    char magic[16];
    const struct hak_page *self;
    const struct hak_page_table *tables;
    uint32_t table_count;
    uint16_t version_major, version_minor;
    char library[16]; /* "MAJOR.MINOR.PATCH" */
};

#endif
