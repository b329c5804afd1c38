/* static_copies.c - two libraries that each hold a copy of hakmem, in a program that runs on a third: each copy serves its
 * own blocks, threads and forks beside the others, and outlives the closing of its library.
 *
 * Planted defects that it catches, in tests/defects: closed_copy_is_unloaded.toml, copies_without_fork_handlers.toml.
 */
#include "../preload/served.h" /* first: it says _GNU_SOURCE */
#include "beside.h"
#include "blocks.h"
#include "child.h"

#include <stdatomic.h>

enum { COPIES = 2, BLOCKS = 400, THREADS = 3 };

static struct copy {
    void *library;
    void *(*malloc)(size_t bytes);
    void (*free)(void *block);
    size_t (*usable_size)(const void *block);
} copies[COPIES];

static void open_library(struct copy *copy, int number) {
    char path[PATH_MAX];
    path_beside(path, "compat", "copy_plugin.so");
    copy->library = open_copy(path, number);
    CHECK(copy->library != NULL);
    copy->malloc = FUNCTION(copy->library, "copy_malloc", void *(size_t));
    copy->free = FUNCTION(copy->library, "copy_free", void(void *));
    copy->usable_size = FUNCTION(copy->library, "copy_usable_size", size_t(const void *));
}

static void open_copies(void) {
    for (int i = 0; i < COPIES; i++)
        if (copies[i].library == NULL) open_library(&copies[i], i);
}

/* Blocks of both copies and of the program's malloc in turn, freed where they came from, in another order. */
static void use_all(uint64_t seed) {
    static const struct copy standard = {NULL, malloc, free, NULL};
    struct rng rng = {seed};
    struct {
        char *block;
        size_t bytes;
        const struct copy *copy;
    } held[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        held[i].copy = i % 3 == 2 ? &standard : &copies[i % 3];
        held[i].bytes = rng_size(&rng, 100);
        held[i].block = held[i].copy->malloc(held[i].bytes);
        CHECK(held[i].block != NULL);
        if (i % 3 != 2) CHECK(held[i].copy->usable_size(held[i].block) >= held[i].bytes);
        block_fill(held[i].block, held[i].bytes, block_key(held[i].block, seed));
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t at = i * 7 % BLOCKS; /* 7 and BLOCKS have no common factor */
        CHECK(block_holds(held[at].block, held[at].bytes, block_key(held[at].block, seed)));
        held[at].copy->free(held[at].block);
    }
}

static void *use_all_in_thread(void *seed) {
    for (uint64_t round = 0; round < 4; round++) use_all((uintptr_t)seed * 100 + round);
    return NULL;
}

TEST(each_copy_serves_its_own_blocks) {
    pthread_t threads[THREADS];
    open_copies();
    use_all(1);
    void *one = copies[0].malloc(100), *other = copies[1].malloc(100);
    CHECK((uintptr_t)one >> 30 != (uintptr_t)other >> 30); /* two windows */
    copies[0].free(one);
    copies[1].free(other);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, use_all_in_thread, (void *)i), 0);
    use_all_in_thread((void *)(uintptr_t)THREADS);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

TEST(many_threads_leave_memory_flat) {
    size_t before = 0;
    open_copies();
    for (uintptr_t i = 0; i < 120; i++) {
        pthread_t thread;
        if (i == 40) before = resident_bytes();
        CHECK_EQ(pthread_create(&thread, NULL, use_all_in_thread, (void *)(i % 5)), 0);
        pthread_join(thread, NULL);
    }
    CHECK_RESIDENT(before, MIB(48));
}

static atomic_bool stop;

static void *use_all_until_stopped(void *seed) {
    while (!atomic_load(&stop)) use_all((uintptr_t)seed);
    return NULL;
}

static void use_all_and_start_a_thread(void) {
    pthread_t thread;
    use_all(17);
    CHECK_EQ(pthread_create(&thread, NULL, use_all_in_thread, NULL), 0);
    pthread_join(thread, NULL);
}

TEST(children_of_a_busy_process_have_all_copies) {
    pthread_t threads[THREADS];
    open_copies();
    atomic_store(&stop, false);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, use_all_until_stopped, (void *)i), 0);
    for (int i = 0; i < 8; i++) IN_CHILD(use_all_and_start_a_thread);
    atomic_store(&stop, true);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* A library is closed while a thread lives that allocated through it, while its purge thread may run, and while its
 * fork handlers are known: all of them point into the library. */
static pthread_barrier_t closing;

static void *allocate_and_outlive(void *argument) {
    struct copy *copy = argument;
    void *block = copy->malloc(1000);
    CHECK(block != NULL);
    for (int i = 0; i < 4; i++) copy->free(copy->malloc(MIB(48))); /* much to give back */
    pthread_barrier_wait(&closing);
    pthread_barrier_wait(&closing);
    return NULL;
}

static void do_nothing(void) {}

TEST(a_closed_library_leaves_its_copy) {
    pthread_t thread;
    struct copy closed;
    open_library(&closed, COPIES);
    CHECK_EQ(pthread_barrier_init(&closing, NULL, 2), 0);
    CHECK_EQ(pthread_create(&thread, NULL, allocate_and_outlive, &closed), 0);
    pthread_barrier_wait(&closing);
    CHECK_EQ(dlclose(closed.library), 0);
    pthread_barrier_wait(&closing);
    pthread_join(thread, NULL);
    IN_CHILD(do_nothing);
    usleep(200 * 1000); /* some steps of a purge thread */
    open_copies();
    use_all(99);
}
