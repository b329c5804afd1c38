/* threads.h - threads that are run to their end. */
#ifndef HAK_TESTS_THREADS_H
#define HAK_TESTS_THREADS_H

#include "check.h" /* first: it says _GNU_SOURCE */

CHECK_UNUSED static void run_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, body, argument), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

#endif
