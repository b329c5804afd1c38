/* common.c - see common.h. */
#include "common.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES_OF_CLASS(class, bytes, pages, blocks, inverse, shift) [class] = bytes,
const uint32_t class_bytes[SIZE_CLASSES] = {SIZE_CLASS_TABLE(BYTES_OF_CLASS)};

void bare_fail(const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "ceiling: %s\n", text);
    _exit(3);
}

void *memory_map(size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) bare_fail("no address space for %zu bytes", bytes);
    return memory;
}

/* ---- threads ------------------------------------------------------------------------------------------ */

struct start {
    void *(*body)(void *);
    void *argument;
    unsigned number;
    atomic_bool ended;
};

static struct start starts[THREADS_MAX]; /* each written by the thread that starts another, before that runs */
static _Atomic unsigned begun = 1;

unsigned threads_begun(void) {
    return atomic_load_explicit(&begun, memory_order_relaxed); /* asked at the end */
}

/* acquire: what the thread allocated came before; pairs with start_enter. */
bool thread_has_ended(unsigned number) {
    return atomic_load_explicit(&starts[number].ended, memory_order_acquire);
}

static void *start_enter(void *context) {
    struct start *start = context;
    thread_begin(start->number);
    void *result = start->body(start->argument);
    atomic_store_explicit(&start->ended, true, memory_order_release);
    return result;
}

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* A front has no test for new threads: each gets its front before its own code runs. */
HAK_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                              void *argument) {
    create_function *create = (create_function *)dlsym(RTLD_NEXT, "pthread_create");
    unsigned number =
        atomic_fetch_add_explicit(&begun, 1, memory_order_relaxed); /* only its own number matters */
    if (number >= THREADS_MAX) bare_fail("starts more than %d threads", THREADS_MAX - 1);
    starts[number].body = body;
    starts[number].argument = argument;
    starts[number].number = number;
    return create(thread, attributes, start_enter, &starts[number]);
}
