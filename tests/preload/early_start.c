/* early_start.c - malloc before main: from .preinit_array and constructors, and
 * dlsym on the way. The blocks are checked, resized and freed in main.
 *
 * To be run also with an empty environment (env -i LD_PRELOAD=... EXPECT_HAKMEM=1).
 *
 * Planted defects it was seen to catch: an allocator that only works after its own constructor; one
 * that starts anew in its constructor and forgets the blocks of before.
 */
#include "served.h"

#include <malloc.h>

enum { STAGES = 3, BLOCKS = 40 };
static const char *const stages[STAGES] = {"preinit", "constructor 101", "constructor"};
static void *early[STAGES][BLOCKS];

static size_t size_of(size_t i) { return (size_t)10 << (i % 14); }

static void allocate_early(size_t stage) {
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = size_of(i);
        unsigned char *block = i % 3 == 0 ? calloc(1, size) : i % 3 == 1 ? malloc(size) : NULL;
        if (block == NULL) block = realloc(NULL, size);
        for (size_t j = 0; block && j < size; j++) block[j] = (unsigned char)(stage * 50 + i + j);
        early[stage][i] = block;
        free(malloc(size * 2));
    }
}

#ifdef __GLIBC__ /* musl does not run .preinit_array */
#define HAS_PREINIT 1
#else
#define HAS_PREINIT 0
#endif

static void allocate_in_preinit(void) { allocate_early(0); }
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = allocate_in_preinit;

__attribute__((constructor(101))) static void allocate_in_first_constructor(void) { allocate_early(1); }

__attribute__((constructor)) static void allocate_in_constructor(void) {
    allocate_early(2);
    dlsym(RTLD_DEFAULT, "no such symbol"); /* dlerror's text is allocated */
    dlerror();
}

TEST(blocks_of_all_stages_are_sound) {
    for (size_t stage = 0; stage < STAGES; stage++) {
        if (stage == 0 && !HAS_PREINIT) continue;
        for (size_t i = 0; i < BLOCKS; i++) {
            unsigned char *block = early[stage][i];
            if (block == NULL) check_say("     stage %s", stages[stage]);
            CHECK(block != NULL);
            CHECK(malloc_usable_size(block) >= size_of(i));
            for (size_t j = 0; j < size_of(i); j++)
                CHECK_AT(block[j] == (unsigned char)(stage * 50 + i + j), j);
            if (i % 2) {
                block = realloc(block, size_of(i) * 3);
                CHECK(block != NULL);
                for (size_t j = 0; j < size_of(i); j++)
                    CHECK_AT(block[j] == (unsigned char)(stage * 50 + i + j), j);
            }
            free(block);
        }
    }
}

TEST(malloc_works_in_main) {
    for (size_t size = 1; size < 10000000; size *= 2) {
        char *block = malloc(size);
        CHECK(block != NULL);
        block[size - 1] = 1;
        free(block);
    }
}
