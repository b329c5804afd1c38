/* ifunc.c - IFUNC resolvers allocate: they run while the program is being relocated, before libc's own start, and in a
 * static program before thread-local storage is what it will be. Programs have them by target_clones and the like, and
 * tools make them allocate.
 *
 * Planted defect that it catches: tests/defects/libc_must_have_started.toml.
 */
#include "../preload/served.h" /* first: it says _GNU_SOURCE */

#include <malloc.h>

enum { BLOCKS = 60 };
static void *early[BLOCKS];
static int resolved;

static size_t size_of(size_t i) { return (size_t)10 << (i % 15); }

static int chosen(void) { return 42; }

typedef int chosen_function(void);

/* No checks here: nothing can be said yet. */
static chosen_function *resolve(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        early[i] = i % 2 ? malloc(size_of(i)) : calloc(1, size_of(i));
        if (early[i]) memset(early[i], (int)i, size_of(i));
        void *other = realloc(malloc(size_of(i)), size_of(i) * 3);
        free(other);
    }
    resolved++;
    return chosen;
}

static int choose(void) __attribute__((ifunc("resolve")));

TEST(blocks_of_a_resolver_are_sound) {
    CHECK_EQ(choose(), 42);
    CHECK_EQ(resolved, 1);
    for (size_t i = 0; i < BLOCKS; i++) {
        unsigned char *block = early[i];
        CHECK_AT(block != NULL, i);
        CHECK(malloc_usable_size(block) >= size_of(i));
        for (size_t j = 0; j < size_of(i); j++) CHECK_AT(block[j] == (unsigned char)i, i);
        if (i % 3 == 0) {
            block = realloc(block, size_of(i) * 2);
            CHECK(block != NULL && block[0] == (unsigned char)i);
        }
        free(block);
    }
}

static void *use_memory(void *unused) {
    for (size_t i = 0; i < 2000; i++) {
        char *block = malloc(size_of(i));
        CHECK(block != NULL);
        memset(block, 1, size_of(i));
        free(block);
    }
    return unused;
}

TEST(memory_works_afterwards) {
    pthread_t thread;
    use_memory(NULL);
    CHECK_EQ(pthread_create(&thread, NULL, use_memory, NULL), 0);
    pthread_join(thread, NULL);
}
