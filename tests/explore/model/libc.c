/* libc.c - what the code under test has of libc, where the explorer must see it: hidden, so that its calls come here. */
#include "model.h"

#include <pthread.h>
#include <string.h>

void *explore_memcpy(void *to, const void *from, size_t bytes);
void *explore_memset(void *to, int value, size_t bytes);

HAK_HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t bytes) { return explore_memcpy(to, from, bytes); }
HAK_HIDDEN void *memmove(void *to, const void *from, size_t bytes) { return explore_memcpy(to, from, bytes); }
HAK_HIDDEN void *memset(void *to, int value, size_t bytes) { return explore_memset(to, value, bytes); }

/* ---- one key, with a value for each thread and one for the setup ------------------------------------------- */

static void (*destructor)(void *);
static struct {
    void *value;
    char apart[120]; /* nobody shares a word */
} keys[EXPLORE_THREADS + 1];

HAK_HIDDEN int pthread_key_create(pthread_key_t *key, void (*destroy)(void *)) {
    *key = 0;
    destructor = destroy;
    return 0;
}

HAK_HIDDEN void *pthread_getspecific(pthread_key_t key) {
    (void)key;
    return keys[explore_self() + 1].value;
}

HAK_HIDDEN int pthread_setspecific(pthread_key_t key, const void *value) {
    (void)key;
    keys[explore_self() + 1].value = (void *)(uintptr_t)value;
    return 0;
}

void model_thread_exit(void) {
    void *value = keys[explore_self() + 1].value;
    keys[explore_self() + 1].value = NULL;
    if (value != NULL) destructor(value);
}
