/* crowd.h - threads that do something one after the other, and then stand still until the test has looked, as if there were as many
 * processors as it says. */
#ifndef HAK_TESTS_CROWD_H
#define HAK_TESTS_CROWD_H

#include "blocks.h" /* first: it says _GNU_SOURCE */

#include "heap/heap.h"
#include "heap/stack.h"
#include "heap/thread.h"

enum { THREADS = 6 };

static uint32_t processors; /* as they were */
static pthread_barrier_t barrier;
static pthread_mutex_t one_by_one = PTHREAD_MUTEX_INITIALIZER; /* for the bodies */
static pthread_t threads[THREADS];
static struct heap *heaps[THREADS]; /* by the bodies */

/* For the bodies: until end_threads. */
static void stop_here(void) {
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
}

/* BODY gets the thread's number. */
static void start_threads(void *(*body)(void *), uint32_t for_processors) {
    thread_ensure_heap();
    processors = heap_settings.processors;
    heap_settings.processors = for_processors;
    CHECK_EQ(pthread_barrier_init(&barrier, NULL, THREADS + 1), 0);
    for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, body, (void *)(uintptr_t)i), 0);
    pthread_barrier_wait(&barrier);
}

static void end_threads(void) {
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(pthread_barrier_destroy(&barrier), 0);
    heap_settings.processors = processors;
}

#endif
