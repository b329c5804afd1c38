/* books.c - a cursor through mappings of 1 MiB. What is not yet taken is untouched. */
#include "region/books.h"

#include "base/bits.h"
#include "os/os.h"

static struct {
    struct os_lock lock; /* guards the rest; held across mmap: a waiting thread needs the same memory */
    char *next;
    char *end;
} books;

_Atomic uint64_t books_taken_bytes;
_Atomic(struct books_mapping *) books_mappings;

void books_lock(void) { os_lock_take(&books.lock); }
void books_unlock(void) { os_lock_drop(&books.lock); }
void books_lock_reset(void) { os_lock_reset(&books.lock); }

uint64_t books_bytes(void) {
    return atomic_load_explicit(&books_taken_bytes, memory_order_relaxed); /* a statistic */
}

/* Lock held. What little is left at the end of the previous mapping is wasted. */
static bool map_more(size_t bytes) {
    size_t least = round_up(bytes + HAK_CACHE_LINE, os_page_bytes());
    size_t size = max_size(least, BOOKS_MAPPING_BYTES);
    char *start = os_map(size, os_page_bytes());
    if (start == NULL) start = os_map(size = least, os_page_bytes());
    if (start == NULL) return false;
    os_name(start, size, OS_NAME_BOOKS);
    struct books_mapping *mapping = (struct books_mapping *)(void *)start;
    mapping->bytes = size;
    mapping->next = atomic_load_explicit(&books_mappings, memory_order_relaxed); /* under the lock */
    atomic_store_explicit(&books_mappings, mapping, memory_order_release);       /* others read it without the lock */
    books.next = start + HAK_CACHE_LINE;
    books.end = start + size;
    return true;
}

void books_start(void) {
    books_lock();
    if (books.next == NULL) map_more(0);
    books_unlock();
}

void *books_take(size_t bytes) {
    void *result = NULL;
    bytes = round_up(bytes, HAK_CACHE_LINE);
    books_lock();
    if ((size_t)(books.end - books.next) >= bytes || map_more(bytes)) {
        result = books.next;
        books.next += bytes;
        atomic_fetch_add_explicit(&books_taken_bytes, bytes, memory_order_relaxed);
    }
    books_unlock();
    return result;
}
