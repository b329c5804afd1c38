/* errno_test.c - success and free leave errno as it was, on the fast and the slow paths.
 *
 * Failing calls are checked where the function is: malloc_test, calloc_test, realloc_test,
 * aligned_test; refused system calls behind a successful operation in faults_test.
 *
 * Planted defects it was seen to catch:
 *   free of a span sets errno                   free_keeps_errno, a_million_operations_...
 *   every 5000th malloc sets errno              a_million_operations_keep_errno
 *   a thread's first malloc sets errno          the_first_operation_of_a_thread_keeps_errno
 */
#include "blocks.h"

enum { SENTINEL = 4711 };

#define KEEPS_ERRNO(operation)                                                                               \
    do {                                                                                                     \
        errno = SENTINEL;                                                                                    \
        operation;                                                                                           \
        CHECK_EQ(errno, SENTINEL);                                                                           \
    } while (0)

TEST(success_keeps_errno) {
    for (size_t size = 0; size <= MIB(64); size += 1 + size / 10) {
        void *block, *aligned = NULL;
        KEEPS_ERRNO(block = hak_malloc(size));
        CHECK(block != NULL);
        KEEPS_ERRNO(CHECK(hak_usable_size(block) >= size));
        KEEPS_ERRNO(block = hak_realloc(block, size + size / 2 + 1));
        CHECK(block != NULL);
        KEEPS_ERRNO(block = hak_realloc(block, size / 2 + 1));
        CHECK(block != NULL);
        KEEPS_ERRNO(hak_free(block));
        KEEPS_ERRNO(block = hak_calloc(1, size));
        CHECK(block != NULL);
        KEEPS_ERRNO(CHECK(hak_realloc(block, 0) == NULL));
        KEEPS_ERRNO(CHECK_EQ(hak_posix_memalign(&aligned, 4096, size), 0));
        KEEPS_ERRNO(hak_free(aligned));
        KEEPS_ERRNO(block = hak_aligned_alloc(64, size));
        CHECK(block != NULL);
        KEEPS_ERRNO(hak_free(block));
        KEEPS_ERRNO(block = hak_memalign(KIB(256), size));
        CHECK(block != NULL);
        KEEPS_ERRNO(hak_free(block));
    }
}

TEST(free_keeps_errno) {
    static void *blocks[3000];
    KEEPS_ERRNO(hak_free(NULL));
    for (size_t size = 16; size <= MIB(16); size *= 2) {
        size_t count = size < KIB(32) ? 3000 : MIB(48) / size;
        for (size_t i = 0; i < count; i++) {
            blocks[i] = hak_malloc(size);
            CHECK(blocks[i] != NULL);
            ((char *)blocks[i])[size - 1] = 1;
        }
        for (size_t i = 0; i < count; i++) KEEPS_ERRNO(hak_free(blocks[i]));
    }
}

TEST(a_million_operations_keep_errno) {
    enum { SLOTS = 2000 };
    static void *slots[SLOTS];
    struct rng rng = {check_now.seed};
    for (size_t left = check_count(1000000); left > 0; left--) {
        size_t i = rng_below(&rng, SLOTS), size = rng_size(&rng, 3000);
        if (slots[i] && rng_below(&rng, 4)) {
            KEEPS_ERRNO(hak_free(slots[i]));
            slots[i] = NULL;
            continue;
        }
        switch (rng_below(&rng, 8)) {
        case 0:
            hak_free(slots[i]);
            KEEPS_ERRNO(slots[i] = hak_calloc(1, size));
            break;
        case 1:
            hak_free(slots[i]);
            KEEPS_ERRNO(slots[i] = hak_memalign(128, size));
            break;
        default:
            KEEPS_ERRNO(slots[i] = hak_realloc(slots[i], size));
            break;
        }
        CHECK_AT(slots[i] != NULL, size);
        *(char *)slots[i] = 1;
    }
    for (size_t i = 0; i < SLOTS; i++) {
        KEEPS_ERRNO(hak_free(slots[i]));
        slots[i] = NULL;
    }
}

static void *malloc_first(void *block) {
    void *own;
    KEEPS_ERRNO(own = hak_malloc(100));
    KEEPS_ERRNO(hak_free(block));
    KEEPS_ERRNO(hak_free(own));
    return NULL;
}

static void *free_first(void *block) {
    KEEPS_ERRNO(hak_free(block));
    return NULL;
}

TEST(the_first_operation_of_a_thread_keeps_errno) {
    for (size_t i = 0; i < check_count(200) + 20; i++) {
        pthread_t thread;
        void *block = hak_malloc(i * 1000);
        CHECK(block != NULL);
        CHECK_EQ(pthread_create(&thread, NULL, i % 2 ? malloc_first : free_first, block), 0);
        pthread_join(thread, NULL);
    }
}
