/* huge.h - memory in states that matter to huge pages: nothing dirty, all touched, a witness, behind a gap; what was asked for, read from
 * /proc/self/smaps; chunks that are broken and mended. */
#ifndef HAK_TESTS_HUGE_H
#define HAK_TESTS_HUGE_H

#include "spans.h"

#include <sys/mman.h>

/* There is some memory, and none of it is dirty. */
CHECK_UNUSED static void leave_nothing_dirty(void) {
    span_give(take_keyed(1, false, 1).first);
    purge_all();
}

/* PAGES pages, all of them touched. */
CHECK_UNUSED static struct mine take_touched(size_t pages) {
    const struct mine mine = take_keyed(pages, false, 1);
    memset(page_address(mine.first), 1, pages * PAGE_BYTES);
    return mine;
}

/* The first chunk of MINE that is a witness; the end where there is none. */
CHECK_UNUSED static size_t find_witness(struct mine mine) {
    size_t page = mine.first;
    while (page < mine.first + mine.pages && !page_chunk(page)->witness) page += CHUNK_PAGES;
    return page;
}

/* Leaves a gap behind what is reserved: PAGES pages that have no room before it. */
CHECK_UNUSED static struct mine take_behind_a_gap(uint32_t pages, bool dense) {
    const uint32_t end = (uint32_t)span_end_page();
    for (uint32_t page = end; page < end + pages; page += CHUNK_PAGES) {
        void *other = mmap(page_address(page), PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (other != page_address(page)) {
            munmap(other, PAGE_BYTES);
            continue;
        }
        const struct mine behind = take_keyed(pages, dense, 7);
        CHECK(behind.first >= page + GIB(1) / PAGE_BYTES);
        return behind;
    }
    SKIP("the window is reserved whole"); /* and nobody is in the way */
}

/* ---- what the kernel was asked for --------------------------------------------------------------------------- */

CHECK_UNUSED static char smaps[1 << 22];

/* "hg" or "nh" where that was asked for the mapping at ADDRESS, "" where neither was; NULL without smaps. */
CHECK_UNUSED static const char *advice_of(uintptr_t address) {
    size_t length = 0;
    int file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    for (ssize_t more; (more = read(file, smaps + length, sizeof smaps - 1 - length)) > 0;) length += (size_t)more;
    close(file);
    smaps[length] = '\0';
    uintptr_t from = 1, to = 0;
    for (char *line = smaps; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
        char *rest;
        uintptr_t start = strtoul(line, &rest, 16);
        if (*rest == '-') {
            from = start;
            to = strtoul(rest + 1, NULL, 16);
        } else if (strncmp(line, "VmFlags:", 8) == 0 && address >= from && address < to) {
            char *end = strchr(line, '\n');
            if (end != NULL) *end = '\0';
            return strstr(line, " hg") ? "hg" : strstr(line, " nh") ? "nh" : "";
        }
    }
    return NULL;
}

/* Whether this kernel has huge pages, and says so. */
CHECK_UNUSED static bool shows_advice(void) {
    void *memory = os_map(MIB(4), MIB(2));
    const char *advice = os_avoid_huge(memory, MIB(4)) ? advice_of((uintptr_t)memory) : NULL;
    return advice != NULL && strcmp(advice, "nh") == 0;
}

CHECK_UNUSED static void check_advice(size_t page, const char *expected) {
    const char *advice = advice_of((uintptr_t)page_address(page));
    CHECK_AT(advice != NULL && strcmp(advice, expected) == 0, page);
}

/* PAGES pages of fresh memory of ZONE. Everything dirty was given back, and ever longer ones are asked for. */
CHECK_UNUSED static struct mine take_fresh(enum span_zone zone, size_t pages, uint64_t key) {
    configure(ACE_NEVER, zone == ZONE_HUGE ? 0 : UINT64_MAX);
    struct span_counts before = counts_now();
    for (;; before = counts_now()) {
        struct mine mine = take_keyed(pages, zone == ZONE_HUGE, key);
        if (counts_now().fresh_pages > before.fresh_pages) {
            CHECK_EQ(page_chunk(mine.first)->zone, zone);
            return mine;
        }
    }
}

/* ---- what is broken, and mended ------------------------------------------------------------------------------------ */

CHECK_UNUSED static void purge_part(uint32_t page) {
    span_purging_lock();
    span_purge_part((char *)page_address(page) + os_page_bytes(), os_page_bytes());
    span_purging_unlock();
}

/* Whether the kernel was asked how much is resident. */
CHECK_UNUSED static bool mend(uint32_t chunk) {
    const uint64_t calls = calls_of(OS_CALL_MINCORE);
    span_purging_lock();
    span_mend(chunk);
    span_purging_unlock();
    return calls_of(OS_CALL_MINCORE) > calls;
}

CHECK_UNUSED static void check_broken(uint32_t chunk, bool broken) {
    CHECK_EQ(page_chunk(chunk)->broken, broken);
    CHECK_EQ(page_chunk(chunk)->no_huge, broken);
    if (shows_advice()) check_advice(chunk, broken ? "nh" : "hg");
}

#endif
