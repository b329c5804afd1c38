/* attributes.h - the compiler's vocabulary, in one place. */
#ifndef HAK_BASE_ATTRIBUTES_H
#define HAK_BASE_ATTRIBUTES_H

#include <features.h> /* says whether libc is glibc */

#define HAK_LIKELY(x) __builtin_expect(!!(x), 1)
#define HAK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HAK_NOINLINE __attribute__((noinline))
#define HAK_INLINE static inline __attribute__((always_inline))
#define HAK_COLD __attribute__((noinline, cold))
#define HAK_ALIGNED(n) __attribute__((aligned(n)))
/* On declarations of hot data: reached without the global offset table. */
#define HAK_HIDDEN __attribute__((visibility("hidden")))
#define HAK_PRINTF(at, first) __attribute__((format(printf, at, first)))

/* On every function that libc or the program may call. When musl cancels a thread asynchronously, it runs the destructors of keys,
 * and so our code, on the stack pointer that the thread had, mostly 8 bytes off what the ABI promises. So with musl the stack is
 * aligned on entry, for our vector moves and for the functions of libc that we call. glibc unwinds, and aligns it. */
#if defined(__x86_64__) && !defined(__GLIBC__)
#define HAK_ENTRY __attribute__((force_align_arg_pointer))
#else
#define HAK_ENTRY
#endif
#define HAK_EXPORT HAK_ENTRY __attribute__((visibility("default")))

/* Another name takes over the attributes of the function it stands for, where the compiler can. */
#if __has_attribute(copy)
#define HAK_ALIAS(function) __attribute__((alias(#function), copy(function)))
#else
#define HAK_ALIAS(function) __attribute__((alias(#function)))
#endif

/* A cache line. Data that two processors write lies two lines apart: current cores fetch lines in pairs. */
#define HAK_CACHE_LINE 64

#define HAK_KIB(n) ((size_t)(n) << 10)
#define HAK_MIB(n) ((size_t)(n) << 20)
#define HAK_GIB(n) ((size_t)(n) << 30)

#endif
