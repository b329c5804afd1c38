/* fortify_test.c - programs built with _FORTIFY_SOURCE=3: the compiler knows the size of each block that it sees made,
 * and libc's checked functions end the process where more is written.
 *
 * Correct programs must not be ended, whatever the declarations of hakmem.h say to the compiler; and the checks must be
 * alive, or nothing is tested.
 *
 * Planted defect it was seen to catch: the header says that calloc gives one byte for each element.
 */
#undef _FORTIFY_SOURCE
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
#define _FORTIFY_SOURCE 3
#endif
#include "child.h"

#include "blocks.h"

#include <fcntl.h>
#include <sys/resource.h>

#if defined(__GLIBC__) && defined(__USE_FORTIFY_LEVEL) && __USE_FORTIFY_LEVEL >= 3 && !CHECK_SHADOWED
#define IS_FORTIFIED 1
#else
#define IS_FORTIFIED 0
#endif

/* A number that the compiler cannot know. */
static __attribute__((noinline)) size_t some(size_t number) {
    __asm__ volatile("" : "+r"(number));
    return number;
}

static __attribute__((noinline)) void must_be_full(const char *block, size_t size, char letter) {
    for (size_t i = 0; i < size; i++) CHECK_AT(block[i] == letter, i);
}

/* To the last byte that was asked for. */
TEST(checked_functions_fill_what_was_asked_for) {
    static char source[70000];
    memset(source, 'x', sizeof source);
    for (size_t size = 1; size <= sizeof source; size += 1 + size / 7) {
        size_t wanted = some(size);
        char *block = hak_malloc(wanted), *zeroed = hak_calloc(wanted, 3),
             *aligned = hak_aligned_alloc(64, wanted);
        CHECK(block != NULL && zeroed != NULL && aligned != NULL);
        memcpy(block, source, wanted);
        must_be_full(block, wanted, 'x');
        memset(zeroed, 'y', 3 * wanted);
        must_be_full(zeroed, 3 * wanted, 'y');
        memmove(aligned, source, wanted);
        must_be_full(aligned, wanted, 'x');
        snprintf(block, wanted, "%s", "a text");
        strncpy(zeroed, "text", 3 * wanted);
        block = hak_realloc(block, 2 * wanted);
        CHECK(block != NULL);
        memset(block, 'z', 2 * wanted);
        must_be_full(block, 2 * wanted, 'z');
        hak_free(block);
        hak_free(zeroed);
        hak_free(aligned);
    }
}

TEST(checked_reads_fill_what_was_asked_for) {
    int file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    if (file < 0) SKIP("no /dev/zero");
    for (size_t size = 1; size < 100000; size = size * 3 + 1) {
        size_t wanted = some(size);
        char *block = hak_malloc(wanted);
        CHECK(block != NULL);
        CHECK_EQ(read(file, block, wanted), wanted);
        must_be_full(block, wanted, '\0');
        hak_free(block);
    }
    close(file);
}

/* Where the compiler saw the size it believes that, so the way to the usable size leads through a realloc, or past it. */
static __attribute__((noinline)) char *allocate_unseen(size_t size) {
    char *block = hak_malloc(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

TEST(checked_functions_fill_what_is_usable) {
    for (size_t size = 0; size < 200000; size += 1 + size / 5) {
        char *block = allocate_unseen(some(size));
        CHECK(block != NULL);
        size_t usable = hak_usable_size(block);
        CHECK(usable >= size);
        memset(block, 'u', usable);
        must_be_full(block, usable, 'u');
        block = hak_realloc(block, usable);
        CHECK(block != NULL);
        memset(block, 'v', usable);
        must_be_full(block, usable, 'v');
        CHECK(hak_usable_size(block) >= usable);
        hak_free(block);
    }
}

/* Only libc's declarations say what a block's size is, and clang forgets it where malloc is no builtin. */
#if IS_FORTIFIED && defined(TEST_AGAINST_LIBC) && !defined(__clang__)
static void write_too_much(void) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    close(STDERR_FILENO); /* glibc's last words are expected */
    size_t size = some(100);
    char *block = malloc(size);
    if (block == NULL) _exit(0);
    memset(block, 'x', some(101));
    must_be_full(block, size, 'x');
    _exit(0);
}

TEST(the_checks_are_alive) {
    int status = child_status(write_too_much, CHILD_SECONDS);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
#else
TEST(the_checks_are_alive) { OMIT("the compiler is told no sizes"); }
#endif
