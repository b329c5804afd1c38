/* kept_data.c - an MADV_DONTNEED that says yes and keeps the data, as emulators and some sandboxes have it. calloc must
 * give zeros all the same. madvise is interposed.
 *
 * The same for an mremap that says yes and leaves the old pages in their place.
 *
 * Planted defect it was seen to catch: a return that the kernel says it made is believed to have given zeros.
 */
#include "child.h"
#include "work.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static atomic_size_t kept, moved;

/* Advice is dropped from the start on, so that whoever asks the kernel once is told the same as later. */
int madvise(void *address, size_t bytes, int advice) {
    if (advice != MADV_DONTNEED && advice != MADV_FREE)
        return (int)syscall(SYS_madvise, address, bytes, advice);
    atomic_fetch_add(&kept, 1);
    return 0;
}

/* Copies, as emulators do that know only the oldest flags. */
void *mremap(void *from, size_t bytes, size_t new_bytes, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    if (to == NULL) return (void *)syscall(SYS_mremap, from, bytes, new_bytes, flags, to);
    atomic_fetch_add(&moved, 1);
    memmove(to, from, bytes < new_bytes ? bytes : new_bytes);
    return to;
}

static void must_be_zero(size_t count, size_t size) {
    static void *blocks[4000];
    CHECK(count <= 4000);
    for (size_t i = 0; i < count; i++) {
        CHECK((blocks[i] = calloc(1, size)) != NULL);
        CHECK_AT(block_is_zero(blocks[i], size), size);
        memset(blocks[i], 0xee, size);
    }
    for (size_t i = 0; i < count; i++) free(blocks[i]);
}

static void *reuse(void *argument) {
    for (size_t size = 16; size <= MIB(8); size *= 2) {
        size_t count = MIB(16) / size < 4000 ? MIB(16) / size : 4000;
        work_leave_dirty(count, size);
        work_give_back();
        must_be_zero(count, size);
        work_give_back();
        must_be_zero(count / 2, size + size / 2);
    }
    CHECK_EQ(work((uintptr_t)argument, 5000), 0);
    return NULL;
}

/* Blocks that grow past others must move: wherever the first lies, most of the rest lie side by side. */
static void grow_beside_others(void) {
    enum { BLOCKS = 8 };
    char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = malloc(MIB(13))) != NULL);
        block_fill(blocks[i], MIB(13), i);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = realloc(blocks[i], MIB(29))) != NULL);
        CHECK_AT(block_holds(blocks[i], MIB(13), i), i);
        memset(blocks[i], 0xee, MIB(29));
        free(blocks[i]);
        must_be_zero(8, MIB(13));
    }
}

TEST(zeros_are_zeros) {
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, reuse, (void *)1), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    reuse((void *)2);
    grow_beside_others();
    CHECK(atomic_load(&kept) > 0); /* or nothing was tested */
    CHECK(!is_hakmem_expected() || atomic_load(&moved) > 0);
}
