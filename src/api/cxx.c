/* cxx.c - operator new and delete, by their mangled names (Itanium C++ ABI), without depending on a C++
 * library: what new needs on failure is looked up in the one that is loaded.
 *
 * The nothrow forms of new are left to that library. They call the plain forms, which are those here, and catch what
 * these or a new handler throws; C cannot catch.
 *
 * Compiled with -fexceptions: std::bad_alloc passes through these frames. */
#include "api/no_memory.h"
#include "api/start.h"
#include "base/bits.h"
#include "hakmem/hakmem.h"
#include "heap/alloc.h"
#include "os/os.h"

#include <dlfcn.h>

#ifndef HAK_NO_LIBC_NAMES

typedef void new_handler(void);
typedef new_handler *get_new_handler(void);
typedef void throw_bad_alloc(void);

/* Weak: resolved when the program brings a C++ library, NULL otherwise. */
extern new_handler *_ZSt15get_new_handlerv(void) __attribute__((weak)); /* std::get_new_handler() */
extern void _ZSt17__throw_bad_allocv(void) __attribute__((weak));       /* std::__throw_bad_alloc() */

/* Weak as well: in a static program there is nothing to look up. */
#pragma weak dlsym
#pragma weak dlopen

/* A C++ library that was loaded with a plugin may be visible to the plugin alone; then it is opened by its name. */
static void *loaded_function(const char *name) {
    static const char *const libraries[] = {"libstdc++.so.6", "libc++.so.1"};
    if (dlsym == NULL || dlopen == NULL) return NULL;
    void *function = dlsym(RTLD_DEFAULT, name);
    for (unsigned i = 0; function == NULL && i < sizeof libraries / sizeof *libraries; i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library != NULL) function = dlsym(library, name);
    }
    return function;
}

/* Calls the new handler; false when none is set. */
static bool call_new_handler(void) {
    get_new_handler *get = _ZSt15get_new_handlerv;
    if (get == NULL) get = (get_new_handler *)loaded_function("_ZSt15get_new_handlerv");
    new_handler *handler = get == NULL ? NULL : get();
    if (handler == NULL) return false;
    handler();
    return true;
}

static _Noreturn HAK_COLD void fail(size_t bytes) {
    throw_bad_alloc *throw = _ZSt17__throw_bad_allocv;
    if (throw == NULL) throw = (throw_bad_alloc *)loaded_function("_ZSt17__throw_bad_allocv");
    if (throw != NULL) throw();
    os_panic("operator new(%zu): no memory, and no C++ library to throw std::bad_alloc", bytes);
}

/* ALIGNMENT is a power of two. */
static HAK_NOINLINE void *new_slow(size_t bytes, size_t alignment) {
    start_once();
    for (;;) {
        void *block = heap_alloc_aligned(bytes, max_size(alignment, SMALLEST_BLOCK_BYTES));
        if (HAK_LIKELY(block != NULL)) return block;
        no_memory(bytes, alignment);
        if (!call_new_handler()) fail(bytes);
    }
}

/* operator new(size_t) */
HAK_EXPORT void *_Znwm(size_t bytes) {
    void *block;
    if (HAK_LIKELY(front_pop(bytes, &block))) return block;
    return new_slow(bytes, SMALLEST_BLOCK_BYTES);
}

/* operator new(size_t, std::align_val_t) */
HAK_EXPORT void *_ZnwmSt11align_val_t(size_t bytes, size_t alignment) { return new_slow(bytes, alignment); }

/* The array forms are the same. */
#define SAME(name, parameters, as) HAK_EXPORT void *name parameters HAK_ALIAS(as);

SAME(_Znam, (size_t bytes), _Znwm)
SAME(_ZnamSt11align_val_t, (size_t bytes, size_t alignment), _ZnwmSt11align_val_t)

static HAK_NOINLINE void delete_slow(void *block) {
    start_once();
    heap_free(block, NULL); /* libc does not call operator delete */
}

/* The sized, aligned and nothrow forms need none of their arguments but the block. */
#define DELETE(name, array_name, ...)                                                              \
    HAK_EXPORT void name(void *block, ##__VA_ARGS__) {                                             \
        if (HAK_LIKELY(front_push(block))) return;                                                 \
        delete_slow(block);                                                                        \
    }                                                                                              \
    HAK_EXPORT void array_name(void *block, ##__VA_ARGS__) HAK_ALIAS(name);

#define SIZED __attribute__((unused)) size_t bytes
#define ALIGNED __attribute__((unused)) size_t alignment
#define NOTHROW __attribute__((unused)) const void *nothrow

DELETE(_ZdlPv, _ZdaPv) /* operator delete(void *) and operator delete[](void *), and so on */
DELETE(_ZdlPvm, _ZdaPvm, SIZED)
DELETE(_ZdlPvSt11align_val_t, _ZdaPvSt11align_val_t, ALIGNED)
DELETE(_ZdlPvmSt11align_val_t, _ZdaPvmSt11align_val_t, SIZED, ALIGNED)
DELETE(_ZdlPvRKSt9nothrow_t, _ZdaPvRKSt9nothrow_t, NOTHROW)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, _ZdaPvSt11align_val_tRKSt9nothrow_t, ALIGNED, NOTHROW)

#endif
