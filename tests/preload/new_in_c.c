/* new_in_c.c - a program without a C++ library that calls operator new all the same, as a plugin may that brings none; then one comes
 * with a plugin, for that alone or for all.
 *
 * Planted defects it was seen to catch:
 *   a library that not everybody sees is none    a_library_that_came_with_a_plugin
 *   without one new returns NULL                 without_a_library_new_ends_the_process
 */
#include "served.h" /* first: it says _GNU_SOURCE */

#include "child.h"

typedef void new_handler(void);

/* operator new(size_t), operator new(size_t, std::nothrow_t const &), operator new(size_t, std::align_val_t, std::nothrow_t const &),
 * operator delete(void *). The archive has no forms of the second kind. */
extern void *_Znwm(size_t bytes) __attribute__((weak));
extern void *_ZnwmRKSt9nothrow_t(size_t bytes, const void *nothrow) __attribute__((weak));
extern void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t bytes, size_t alignment, const void *nothrow) __attribute__((weak));
extern void _ZdlPv(void *block) __attribute__((weak));

static volatile size_t impossible = (size_t)PTRDIFF_MAX;
static const char nothrow;
static void *volatile got; /* or the compiler leaves out a pair, and a new whose result is only compared */

static void need_operators(void) {
    if (_Znwm == NULL || _ZdlPv == NULL) OMIT("no operators");
}

static void need_nothrow_forms(void) {
    need_operators();
    if (_ZnwmRKSt9nothrow_t == NULL) OMIT("linked with the archive");
}

TEST(without_a_library_there_is_memory) {
    need_operators();
    for (size_t bytes = 1; bytes < 1000000; bytes *= 3) {
        got = _Znwm(bytes);
        CHECK(got != NULL);
        memset(got, 1, bytes);
        _ZdlPv(got);
    }
}

TEST(without_a_library_nothrow_forms_return_null) {
    need_nothrow_forms();
    got = _ZnwmRKSt9nothrow_t(impossible, &nothrow);
    CHECK(got == NULL);
    got = _ZnwmSt11align_val_tRKSt9nothrow_t(impossible, 64, &nothrow);
    CHECK(got == NULL);
    got = _ZnwmSt11align_val_tRKSt9nothrow_t(100, 64, &nothrow);
    CHECK(got != NULL && (uintptr_t)got % 64 == 0);
    _ZdlPv(got);
}

HELPER(new_finds_no_memory) { got = _Znwm(impossible); }

static int ends[2];

static void find_no_memory(void) {
    CHECK_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    become_helper("new_finds_no_memory");
}

/* Nobody could catch anything. */
TEST(without_a_library_new_ends_the_process) {
    char said[1000] = "";
    need_operators();
    if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");
    CHECK_EQ(pipe(ends), 0);
    const int status = child_status(find_no_memory, CHILD_SECONDS);
    close(ends[1]);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(read(ends[0], said, sizeof said - 1) > 0);
    CHECK(strstr(said, "no C++ library") != NULL);
    close(ends[0]);
}

static int handler_calls;
static new_handler *(*set_new_handler)(new_handler *handler);

static void give_up_after_three(void) {
    if (++handler_calls == 3) set_new_handler(NULL);
}

static void use_a_plugins_library(int visibility) {
    static const char *const libraries[] = {"libstdc++.so.6", "libc++.so.1"};
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < 2; i++) library = dlopen(libraries[i], RTLD_LAZY | visibility);
#ifndef __GLIBC__
    if (library == NULL) OMIT("the system's C++ library is glibc's");
#endif
    if (library == NULL) SKIP("no C++ library");
    set_new_handler = (new_handler * (*)(new_handler *)) dlsym(library, "_ZSt15set_new_handlerPFvvE");
    CHECK(set_new_handler != NULL);
    CHECK((dlsym(RTLD_DEFAULT, "_ZSt15set_new_handlerPFvvE") == NULL) == (visibility == RTLD_LOCAL));
    set_new_handler(give_up_after_three);
    got = _ZnwmRKSt9nothrow_t(impossible, &nothrow);
    CHECK(got == NULL);
    CHECK_EQ(handler_calls, 3);
    got = _ZnwmRKSt9nothrow_t(impossible, &nothrow);
    CHECK(got == NULL);
    CHECK_EQ(handler_calls, 3);
}

static void use_its_own(void) { use_a_plugins_library(RTLD_LOCAL); }
static void use_everybodys(void) { use_a_plugins_library(RTLD_GLOBAL); }

/* What its handler throws only that library catches. */
TEST(a_library_that_came_with_a_plugin) {
    need_nothrow_forms();
    IN_CHILD(use_its_own);
    IN_CHILD(use_everybodys);
}
