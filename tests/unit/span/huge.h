/* huge.h - memory in states that matter to huge pages: nothing dirty, all touched, behind a gap. */
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

#endif
