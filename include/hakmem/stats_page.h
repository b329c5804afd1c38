/* stats_page.h - hakmem's books as other processes may read them, without the help of the process and while it runs.
 *
 * Somewhere in the writable or relocated data of the library, or of the program that was linked with it, lies a struct
 * hak_page at a multiple of 16 bytes. It begins with HAK_PAGE_MAGIC, and its member self is its own address: whatever else
 * holds the magic is none. It leads to tables of records of numbers, and says of each number its name, its place and its size, so
 * that a reader needs this header and nothing else of hakmem's. docs/statistics.md lists the tables and what the numbers mean.
 *
 * All addresses are of the process that is read (process_vm_readv(2), /proc/PID/mem). Numbers are little-endian, as the
 * machine is. Each is written at once; two of them may be of different moments. Nothing here is ever unmapped; records of
 * linked tables are added, those of outside_parts at the end and others at the front, and never removed.
 *
 * A reader accepts every page of the same version_major; a greater version_minor has more tables or fields. Until 0.1.0 is
 * released the page may change under the same version. */
#ifndef HAKMEM_STATS_PAGE_H
#define HAKMEM_STATS_PAGE_H

#include <stdint.h>

#define HAK_PAGE_MAGIC "hakmem\0\xb2\x1c" "books\x7f" /* 15 bytes and the final 0 */
#define HAK_PAGE_VERSION_MAJOR 1
#define HAK_PAGE_VERSION_MINOR 1

enum hak_page_kind {
    HAK_PAGE_GAUGE,   /* of now */
    HAK_PAGE_COUNTER, /* only grows */
    HAK_PAGE_ADDRESS, /* of memory */
    HAK_PAGE_STRING,  /* of a string that ends with a 0; 0: none */
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
    HAK_PAGE_POINTED,  /* ADDRESS holds the address of the first record; how many there are is said elsewhere. ADDRESS 0: where
                        * they lie is said elsewhere, too */
    HAK_PAGE_INSIDE    /* in each record of the list or array PARENT, COUNT records from byte ADDRESS on */
};

struct hak_page_table {
    char name[16];
    uint64_t address;
    const struct hak_page_field *fields;
    uint32_t field_count;
    uint32_t place;        /* an enum hak_page_place */
    uint32_t record_bytes; /* from one to the next */
    uint32_t count;
    uint32_t next;
    uint32_t parent;       /* number of a table, from 0 */
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
