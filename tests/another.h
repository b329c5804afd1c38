/* another.h - a second thread with a heap, which stands still until the test has looked. */
#ifndef HAK_TESTS_ANOTHER_H
#define HAK_TESTS_ANOTHER_H

#include "blocks.h" /* first: it says _GNU_SOURCE */

#include "heap/alloc.h"

static pthread_t another;
static pthread_barrier_t meeting;

static void *be_another(void *unused) {
    heap_free(heap_alloc(100, NULL), NULL);
    pthread_barrier_wait(&meeting);
    pthread_barrier_wait(&meeting);
    return unused;
}

static void start_another(void) {
    CHECK_EQ(pthread_barrier_init(&meeting, NULL, 2), 0);
    CHECK_EQ(pthread_create(&another, NULL, be_another, NULL), 0);
    pthread_barrier_wait(&meeting);
}

static void end_another(void) {
    pthread_barrier_wait(&meeting);
    CHECK_EQ(pthread_join(another, NULL), 0);
    CHECK_EQ(pthread_barrier_destroy(&meeting), 0);
}

#endif
