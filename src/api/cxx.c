/* cxx.c - operator new and delete, by their mangled names (Itanium C++ ABI), without depending on a C++
 * library: what new needs on failure is looked up in the one that is loaded.
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

/* The C++ library's own function, kept in FOUND; NULL if no such library is loaded. */
static void *library_function(const char *name, _Atomic(void *) *found) {
    static const char *const libraries[] = {"libstdc++.so.6", "libc++.so.1"};
    void *function = atomic_load_explicit(found, memory_order_relaxed); /* it was loaded before, and stays */
    for (unsigned i = 0; dlopen != NULL && function == NULL && i < sizeof libraries / sizeof *libraries; i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library != NULL) function = dlsym(library, name);
    }
    atomic_store_explicit(found, function, memory_order_relaxed);
    return function;
}

/* A C++ library that was loaded with a plugin may be visible to the plugin alone. */
static void *visible_function(const char *name, _Atomic(void *) *found) {
    void *function = dlsym == NULL ? NULL : dlsym(RTLD_DEFAULT, name);
    return function != NULL ? function : library_function(name, found);
}

/* NULL when none is set. */
static new_handler *current_new_handler(void) {
    static _Atomic(void *) found;
    get_new_handler *get = _ZSt15get_new_handlerv;
    if (get == NULL) get = (get_new_handler *)visible_function("_ZSt15get_new_handlerv", &found);
    return get == NULL ? NULL : get();
}

static _Noreturn HAK_COLD void fail(size_t bytes) {
    static _Atomic(void *) found;
    throw_bad_alloc *throw = _ZSt17__throw_bad_allocv;
    if (throw == NULL) throw = (throw_bad_alloc *)visible_function("_ZSt17__throw_bad_allocv", &found);
    if (throw != NULL) throw();
    os_panic("operator new(%zu): no memory, and no C++ library to throw std::bad_alloc", bytes);
}

/* ALIGNMENT is a power of two, here and below. */
static HAK_NOINLINE void *try_new(size_t bytes, size_t alignment) {
    start_once();
    return heap_alloc_aligned(bytes, max_size(alignment, SMALLEST_BLOCK_BYTES));
}

static HAK_NOINLINE void *new_slow(size_t bytes, size_t alignment) {
    for (;;) {
        void *block = try_new(bytes, alignment);
        if (HAK_LIKELY(block != NULL)) return block;
        no_memory(bytes, alignment);
        new_handler *handler = current_new_handler();
        if (handler == NULL) fail(bytes);
        handler();
    }
}

/* Weak: in a static program its own operators replace these one by one. */
#define OPERATOR HAK_EXPORT __attribute__((weak))

/* operator new(size_t) */
OPERATOR void *_Znwm(size_t bytes) {
    void *block;
    if (HAK_LIKELY(front_pop(bytes, &block))) return block;
    return new_slow(bytes, SMALLEST_BLOCK_BYTES);
}

/* operator new(size_t, std::align_val_t) */
OPERATOR void *_ZnwmSt11align_val_t(size_t bytes, size_t alignment) {
    void *block;
    if (HAK_LIKELY(front_pop_aligned(bytes, alignment, &block))) return block;
    return new_slow(bytes, alignment);
}

static HAK_NOINLINE void delete_slow(void *block) {
    start_once();
    heap_free(block, NULL); /* libc does not call operator delete */
}

/* operator delete(void *) */
OPERATOR void _ZdlPv(void *block) {
    if (HAK_LIKELY(front_push(block))) return;
    delete_slow(block);
}

/* operator delete(void *, std::align_val_t) */
OPERATOR void _ZdlPvSt11align_val_t(void *block, __attribute__((unused)) size_t alignment) {
    if (HAK_LIKELY(front_push(block))) return;
    delete_slow(block);
}

/* All other forms call one of these, by name: a program may have replaced just that one, and its blocks need not be ours. The C++
 * standard says which form calls which. A jump, since none uses the stack. */
#define DERIVED __attribute__((visibility("default"), weak))
#define NEW_BY(name, parameters, by, arguments)                                                    \
    DERIVED void *name parameters { return by arguments; }
#define DELETE_BY(name, parameters, by, arguments)                                                 \
    DERIVED void name parameters { by arguments; }

#define UNUSED __attribute__((unused))
#define SIZED UNUSED size_t bytes
#define ALIGNED size_t alignment
#define NOTHROW UNUSED const void *nothrow

NEW_BY(_Znam, (size_t bytes), _Znwm, (bytes)) /* operator new[](size_t), and so on */
NEW_BY(_ZnamSt11align_val_t, (size_t bytes, ALIGNED), _ZnwmSt11align_val_t, (bytes, alignment))

DELETE_BY(_ZdaPv, (void *block), _ZdlPv, (block)) /* operator delete[](void *), and so on */
DELETE_BY(_ZdlPvm, (void *block, SIZED), _ZdlPv, (block))
DELETE_BY(_ZdaPvm, (void *block, SIZED), _ZdaPv, (block))
DELETE_BY(_ZdlPvRKSt9nothrow_t, (void *block, NOTHROW), _ZdlPv, (block))
DELETE_BY(_ZdaPvRKSt9nothrow_t, (void *block, NOTHROW), _ZdaPv, (block))

DELETE_BY(_ZdaPvSt11align_val_t, (void *block, ALIGNED), _ZdlPvSt11align_val_t, (block, alignment))
DELETE_BY(_ZdlPvmSt11align_val_t, (void *block, SIZED, ALIGNED), _ZdlPvSt11align_val_t, (block, alignment))
DELETE_BY(_ZdaPvmSt11align_val_t, (void *block, SIZED, ALIGNED), _ZdaPvSt11align_val_t, (block, alignment))
DELETE_BY(_ZdlPvSt11align_val_tRKSt9nothrow_t, (void *block, ALIGNED, NOTHROW), _ZdlPvSt11align_val_t, (block, alignment))
DELETE_BY(_ZdaPvSt11align_val_tRKSt9nothrow_t, (void *block, ALIGNED, NOTHROW), _ZdaPvSt11align_val_t, (block, alignment))

/* ---- nothrow forms of new: of the shared object alone (HakLibrary.cmake) ---------------------------------- */

/* A C++ library has them, too; there they call the form that they are derived from, and catch what it or a new handler throws. C
 * cannot catch, so what may throw is left to that library. But a program that is linked with another malloc may find them there, with
 * memory of that malloc: hence these. */

extern void *own_new(size_t bytes) HAK_ALIAS(_Znwm) HAK_HIDDEN;
extern void *own_new_array(size_t bytes) HAK_ALIAS(_Znam) HAK_HIDDEN;
extern void *own_new_aligned(size_t bytes, size_t alignment) HAK_ALIAS(_ZnwmSt11align_val_t) HAK_HIDDEN;
extern void *own_new_array_aligned(size_t bytes, size_t alignment) HAK_ALIAS(_ZnamSt11align_val_t) HAK_HIDDEN;

/* Whether the program has left the form, and those that it calls, as they are here. */
static bool is_own(void) { return _Znwm == own_new; }
static bool is_own_array(void) { return _Znam == own_new_array && is_own(); }
static bool is_own_aligned(void) { return _ZnwmSt11align_val_t == own_new_aligned; }
static bool is_own_array_aligned(void) { return _ZnamSt11align_val_t == own_new_array_aligned && is_own_aligned(); }

#define NEW_NOTHROW(name, parameters, arguments, alignment, is_own_form, by, by_arguments)         \
    OPERATOR void *name parameters {                                                               \
        static _Atomic(void *) found;                                                              \
        if (HAK_LIKELY(is_own_form())) {                                                           \
            void *block = try_new(bytes, alignment);                                               \
            if (HAK_LIKELY(block != NULL)) return block;                                           \
            no_memory(bytes, alignment);                                                           \
            if (current_new_handler() == NULL) return NULL;                                        \
        }                                                                                          \
        void *(*catching) parameters = (void *(*) parameters)library_function(#name, &found);      \
        if (catching != NULL) return catching arguments;                                           \
        return is_own_form() ? NULL : by by_arguments; /* a handler that throws would end the process */ \
    }

NEW_NOTHROW(_ZnwmRKSt9nothrow_t, (size_t bytes, const void *nothrow), (bytes, nothrow), SMALLEST_BLOCK_BYTES, is_own, _Znwm, (bytes))
NEW_NOTHROW(_ZnamRKSt9nothrow_t, (size_t bytes, const void *nothrow), (bytes, nothrow), SMALLEST_BLOCK_BYTES, is_own_array, _Znam,
            (bytes))
NEW_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t bytes, size_t alignment, const void *nothrow), (bytes, alignment, nothrow),
            alignment, is_own_aligned, _ZnwmSt11align_val_t, (bytes, alignment))
NEW_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t bytes, size_t alignment, const void *nothrow), (bytes, alignment, nothrow),
            alignment, is_own_array_aligned, _ZnamSt11align_val_t, (bytes, alignment))

#endif
