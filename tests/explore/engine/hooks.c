/* hooks.c - what a compiler calls at each access of code that is compiled with -fsanitize=thread (gcc and clang), and the
 * functions of libc that access memory for it. */
#include "memory.h"
#include "run.h"

#include <string.h>

#define CODE ((uintptr_t)__builtin_return_address(0))

/* The compiler knows these names, but no header has them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"

static void plain(const volatile void *address, size_t bytes, bool write, uintptr_t code) {
    if (write) memory_touch(address, bytes);
    if (run_is_inside()) run_access((uintptr_t)address, bytes, write, code);
}

#define PLAIN(bytes)                                                                                                   \
    void __tsan_read##bytes(void *address) { plain(address, bytes, false, CODE); }                                    \
    void __tsan_write##bytes(void *address) { plain(address, bytes, true, CODE); }                                    \
    void __tsan_unaligned_read##bytes(void *address) { plain(address, bytes, false, CODE); }                          \
    void __tsan_unaligned_write##bytes(void *address) { plain(address, bytes, true, CODE); }                          \
    void __tsan_read_write##bytes(void *address) { plain(address, bytes, true, CODE); }                               \
    void __tsan_unaligned_read_write##bytes(void *address) { plain(address, bytes, true, CODE); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void *address, size_t bytes) { plain(address, bytes, false, CODE); }
void __tsan_write_range(void *address, size_t bytes) { plain(address, bytes, true, CODE); }
void __tsan_init(void) {}
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void) {}

/* ---- atomics ------------------------------------------------------------------------------------------------- */

static bool exchange(uint64_t old, const struct change *change, uint64_t *new) {
    (void)old;
    *new = change->operand;
    return true;
}
static bool compare(uint64_t old, const struct change *change, uint64_t *new) {
    *new = change->operand;
    return old == change->expected;
}
#define ARITHMETIC(name, expression)                                                                                   \
    static bool name(uint64_t old, const struct change *change, uint64_t *new) {                                     \
        *new = (expression);                                                                                           \
        return true;                                                                                                   \
    }
ARITHMETIC(fetch_add, old + change->operand)
ARITHMETIC(fetch_sub, old - change->operand)
ARITHMETIC(fetch_or, old | change->operand)
ARITHMETIC(fetch_and, old & change->operand)
ARITHMETIC(fetch_xor, old ^ change->operand)
ARITHMETIC(fetch_nand, ~(old & change->operand))

/* Alone, before the threads start and after they ended, an atomic is memory. */
static uint64_t change_word(volatile void *address, unsigned bytes, const struct change *change, uintptr_t code) {
    if (run_is_inside()) return run_exchange((uintptr_t)address, bytes, change, code);
    uint64_t old = memory_load((uintptr_t)address, bytes), new;
    if (change->change(old, change, &new)) memory_store((uintptr_t)address, bytes, new);
    return old;
}

static uint64_t load(const volatile void *address, unsigned bytes, int order, uintptr_t code) {
    return run_is_inside() ? run_load((uintptr_t)address, bytes, order, code) : memory_load((uintptr_t)address, bytes);
}

static void store(volatile void *address, unsigned bytes, int order, uint64_t value, uintptr_t code) {
    if (run_is_inside())
        run_store((uintptr_t)address, bytes, order, value, code);
    else
        memory_store((uintptr_t)address, bytes, value);
}

#define CHANGE(type, bits, operation)                                                                                  \
    type __tsan_atomic##bits##_##operation(volatile type *address, type operand, int order) {                        \
        struct change change = {.change = operation, .operand = operand, .order = order};                              \
        return (type)change_word(address, bits / 8, &change, CODE);                                                    \
    }
#define COMPARE(type, bits, name)                                                                                      \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile type *address, type *expected, type value, int order,  \
                                                      int failure) {                                                   \
        struct change change = {compare, *expected, value, order, failure, AWAITS_NOTHING, 0};                         \
        type old = (type)change_word(address, bits / 8, &change, CODE);                                                \
        bool done = old == *expected;                                                                                  \
        if (!done) *expected = old;                                                                                    \
        return done;                                                                                                   \
    }
#define ATOMIC(type, bits)                                                                                             \
    type __tsan_atomic##bits##_load(const volatile type *address, int order) {                                       \
        return (type)load(address, bits / 8, order, CODE);                                                             \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile type *address, type value, int order) {                                \
        store(address, bits / 8, order, value, CODE);                                                                  \
    }                                                                                                                  \
    CHANGE(type, bits, exchange)                                                                                       \
    CHANGE(type, bits, fetch_add)                                                                                      \
    CHANGE(type, bits, fetch_sub)                                                                                      \
    CHANGE(type, bits, fetch_or)                                                                                       \
    CHANGE(type, bits, fetch_and)                                                                                      \
    CHANGE(type, bits, fetch_xor)                                                                                      \
    CHANGE(type, bits, fetch_nand)                                                                                     \
    COMPARE(type, bits, strong)                                                                                        \
    COMPARE(type, bits, weak)                                                                                          \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *address, type expected, type value, int order,     \
                                                    int failure) {                                                     \
        struct change change = {compare, expected, value, order, failure, AWAITS_NOTHING, 0};                          \
        return (type)change_word(address, bits / 8, &change, CODE);                                                    \
    }
ATOMIC(uint8_t, 8)
ATOMIC(uint16_t, 16)
ATOMIC(uint32_t, 32)
ATOMIC(uint64_t, 64)

void __tsan_atomic_thread_fence(int order) {
    if (run_is_inside()) run_fence(order, CODE);
}

/* Between a thread and its own signal handlers there is program order already: see docs/explored.md. */
void __tsan_atomic_signal_fence(int order) { (void)order; }

/* ---- what libc does for the code: the library is linked so that these come first ---------------------------------- */

void *explore_memcpy(void *to, const void *from, size_t bytes) {
    plain(from, bytes, false, CODE);
    plain(to, bytes, true, CODE);
    return memmove(to, from, bytes);
}

void *explore_memset(void *to, int value, size_t bytes) {
    plain(to, bytes, true, CODE);
    return memset(to, value, bytes);
}
