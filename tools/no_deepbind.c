/* no_deepbind.c - libhakmem-no-deepbind.so, preloaded beside libhakmem.so: dlopen without RTLD_DEEPBIND.
 *
 * A plugin that is opened with that flag looks into itself and its own libraries first, and so finds libc's
 * malloc: what it allocates the host cannot free, and what the host allocates it cannot. Without the flag
 * all of them find hakmem's. What else the flag was wanted for is lost: a plugin with names of its own
 * that the program has too now gets the program's. That is why this is a choice (./hakmem run --no-deepbind).
 *
 * The loader takes from the return address who called dlopen, and with it the RUNPATH to search and the namespace
 * to open in. So both functions go on by a jump: the caller's return address stays what it was. Without the
 * jump tests/system/test_deepbind.py fails. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

#ifndef RTLD_DEEPBIND /* musl binds nothing deeply */
#define RTLD_DEEPBIND 0
#endif

/* The next function of that name, usually libc's: the same for all threads. */
static void *next(_Atomic(void *) *known, const char *name) {
    void *found = atomic_load_explicit(known, memory_order_relaxed); /* any thread stores the same */
    if (found == NULL) {
        found = dlsym(RTLD_NEXT, name);
        atomic_store_explicit(known, found, memory_order_relaxed);
    }
    return found;
}

/* ISO C has no cast from an object's address to a function's. */
#define AS(type, address)                                                                                    \
    (((union {                                                                                               \
         void *object;                                                                                       \
         type *function;                                                                                     \
     }){.object = (address)})                                                                                \
         .function)

typedef void *open_function(const char *, int);

EXPORT void *dlopen(const char *file, int mode) {
    static _Atomic(void *) known;
    return AS(open_function, next(&known, "dlopen"))(file, mode & ~RTLD_DEEPBIND);
}

#ifdef LM_ID_BASE /* namespaces: glibc has them */
typedef void *open_in_function(Lmid_t, const char *, int);

EXPORT void *dlmopen(Lmid_t where, const char *file, int mode) {
    static _Atomic(void *) known;
    return AS(open_in_function, next(&known, "dlmopen"))(where, file, mode & ~RTLD_DEEPBIND);
}
#endif
