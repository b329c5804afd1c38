/* attributes.h - the compiler's vocabulary, in one place. */
#ifndef HAK_BASE_ATTRIBUTES_H
#define HAK_BASE_ATTRIBUTES_H

#define HAK_LIKELY(x) __builtin_expect(!!(x), 1)
#define HAK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HAK_NOINLINE __attribute__((noinline))
#define HAK_INLINE static inline __attribute__((always_inline))
#define HAK_COLD __attribute__((noinline, cold))
#define HAK_EXPORT __attribute__((visibility("default")))
#define HAK_ALIGNED(n) __attribute__((aligned(n)))
/* On declarations of hot data: reached without the global offset table. */
#define HAK_HIDDEN __attribute__((visibility("hidden")))
#define HAK_PRINTF(at, first) __attribute__((format(printf, at, first)))

/* Another name takes over the attributes of the function it stands for, where the compiler can. */
#if __has_attribute(copy)
#define HAK_ALIAS(function) __attribute__((alias(#function), copy(function)))
#else
#define HAK_ALIAS(function) __attribute__((alias(#function)))
#endif

/* Lines that two processors write must be this far apart: current cores fetch lines in pairs. */
#define HAK_CACHE_LINE 64

#define HAK_KIB(n) ((size_t)(n) << 10)
#define HAK_MIB(n) ((size_t)(n) << 20)
#define HAK_GIB(n) ((size_t)(n) << 30)

#endif
