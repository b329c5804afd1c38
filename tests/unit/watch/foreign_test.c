/* foreign_test.c - what a pointer that is no block looks like, and what is done with it.
 *
 * Planted defects it was seen to catch:
 *   the block before is named for an interior pointer   the_looks_of_a_pointer
 *   libc gets what lies in hakmem's memory              libc_gets_only_what_may_be_its_own
 *   the whole window is hakmem's                        what_others_map_in_the_window_is_theirs
 *   a count is not kept                                 counted_and_otherwise_ignored
 *   who asks for the size is counted, too               counted_and_otherwise_ignored, libc_gets_only_what_may_be_its_own
 *   what is not looked up passes for unmapped           without_proc, under_a_filter_of_the_programs_own
 *   the next free is looked up each time                what_the_loader_last_said_stays
 */
#include "watch/foreign.h"

#include "group_root.h"

#include "blocks.h"
#include "child.h"
#include "heap/alloc.h"
#include "heap/heap.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static char looks[400];
static char of_program[5000];

static bool looks_like(const void *pointer, const char *words) {
    foreign_describe(pointer, looks, sizeof looks);
    bool does = strstr(looks, words) != NULL;
    if (!does) check_say("     %s", looks);
    return does;
}

TEST(the_looks_of_a_pointer) {
    char local[100] = "";
    char *large = hak_malloc(MIB(3)), *medium = hak_malloc(KIB(300)), *small = hak_malloc(100);
    char *mapped = mmap(NULL, MIB(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    CHECK(looks_like(local, "it lies on this thread's stack"));
    CHECK(looks_like(of_program + 4000, "foreign_test"));
    CHECK(looks_like((const void *)(uintptr_t)&looks_like, "foreign_test"));
    CHECK(looks_like(large + 1, "it points 1 bytes into a block of 3145728 bytes"));
    CHECK(looks_like(large + KIB(200), "it points 204800 bytes into a block of 3145728 bytes"));
    char *pages = page_address(page_index(medium)); /* from which it is counted */
    CHECK(looks_like(pages + 1, "it points 1 bytes into a block of 327680 bytes"));
    CHECK(looks_like(pages + KIB(200), "it points 204800 bytes into a block of 327680 bytes"));
    CHECK(looks_like(pages + KIB(320), "where no block is"));
    char *coloured = hak_malloc(MIB(3) - KIB(5));
    char words[100];
    snprintf(words, sizeof words, "it points 204800 bytes into a block of %zu bytes", heap_usable_bytes(coloured));
    CHECK(looks_like(coloured + KIB(200), words));
    hak_free(coloured);
    CHECK(looks_like(small + 24, "it points 24 bytes into a block of 112 bytes"));
    CHECK(looks_like((void *)8, "nothing is mapped there"));
    CHECK(looks_like((void *)-16, "nothing is mapped there"));
    CHECK(looks_like(mapped + 4096, "it lies in memory that is not hakmem's"));
    munmap(mapped, MIB(1));
    CHECK(looks_like(mapped, "nothing is mapped there"));
    hak_free(large);
    CHECK(looks_like(large, "perhaps it was freed before"));
    CHECK(looks_like(page_address(span_end_page()), "where no block is"));
    hak_free(small);
    hak_free(medium);
    CHECK(looks_like(medium, "perhaps it was freed before"));
    char little[12];
    foreign_describe(local, little, sizeof little);
    CHECK(strlen(little) == sizeof little - 1);
}

/* In a small address space the window reaches over everybody's memory. */
TEST(what_others_map_in_the_window_is_theirs) {
    char *last = page_address(window.pages - 1);
    if (mmap(last, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != last) SKIP("the window is reserved whole");
    CHECK(looks_like(last, "it lies in memory that is not hakmem's"));
    CHECK_EQ(munmap(last, 4096), 0);
    CHECK(looks_like(last, "nothing is mapped there"));
}

#ifndef CHECK_EMULATED /* an emulator's own break is the one that the kernel names */
TEST(a_block_of_libcs_heap) {
    uintptr_t end = (uintptr_t)syscall(SYS_brk, 0);
    if ((uintptr_t)syscall(SYS_brk, end + 4096) != end + 4096) SKIP("no break");
    CHECK(looks_like((const void *)end, "it lies in libc's own heap"));
}
#endif

static void look_without_proc(void) {
    if (!enter_root()) SKIP("this user may not have a root of its own");
    CHECK(looks_like((void *)8, "it lies outside of hakmem's memory"));
    leave_root();
}
TEST(without_proc) { in_child_with_root(look_without_proc); }

#if __has_include(<linux/seccomp.h>) /* musl's headers do not bring the kernel's */

#include "sandbox.h"

static void look_without_files(void) {
    static const struct sandbox_rule no_files[] = {{.call = SYS_openat}};
    char *small = hak_malloc(100), local[100] = "";
    sandbox_enter(SANDBOX_RULES(no_files), SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    CHECK(looks_like(small + 24, "it points 24 bytes into a block of 112 bytes"));
    CHECK(looks_like(local, "it lies outside of hakmem's memory"));
    CHECK(looks_like((void *)8, "is not looked up without /proc, nor under a seccomp filter"));
    sandbox_leave();
}

TEST(under_a_filter_of_the_programs_own) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    IN_CHILD(look_without_files);
}
#endif

static void *of_thread(void *unused) {
    char local[100] = "";
    CHECK(looks_like(local, "it lies on this thread's stack"));
    return unused;
}

TEST(another_threads_stack_is_known_there) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, of_thread, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void count_some(void) {
    uint64_t before = foreign_count();
    foreign_configure(FOREIGN_COUNT);
    for (size_t i = 0; i < 10; i++) hak_free(of_program + 16 * i);
    CHECK_EQ(foreign_count() - before, 10);
    CHECK_EQ(hak_usable_size(of_program), 0);
    CHECK_EQ(foreign_count() - before, 10);
    char *block = hak_realloc(of_program, 100);
    CHECK(block != NULL && block != of_program);
    CHECK_EQ(foreign_count() - before, 11);
    hak_free(block);
}

TEST(counted_and_otherwise_ignored) { IN_CHILD(count_some); }

/* libc's own functions, past hakmem's. */
static void *of_libc(size_t bytes) {
    void *(*libc_malloc)(size_t) = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    CHECK(libc_malloc != NULL);
    return libc_malloc(bytes);
}

static void hand_to_libc(void) {
    uint64_t freed = foreign_count();
    foreign_configure(FOREIGN_LIBC);
    for (size_t bytes = 1; bytes < MIB(2); bytes *= 3) {
        char *block = of_libc(bytes);
        CHECK(block != NULL && !heap_owns(block));
        CHECK(hak_usable_size(block) >= bytes);
        memset(block, 'x', bytes);
        if (bytes % 2) {
            char *moved = hak_realloc(block, bytes * 10);
            CHECK(moved != NULL && heap_owns(moved) && moved[0] == 'x' && moved[bytes - 1] == 'x');
            hak_free(moved);
        } else {
            hak_free(block);
        }
        CHECK_EQ(foreign_count(), ++freed);
    }
}

static void hand_ours_to_libc(void) {
    foreign_configure(FOREIGN_LIBC);
    char *block = hak_calloc(1, MIB(3)); /* where libc would see a block of 0 bytes */
    CHECK_EQ(hak_usable_size(block + 4096), 0);
}

TEST(libc_gets_only_what_may_be_its_own) {
    if (dlsym(RTLD_NEXT, "malloc") == NULL) OMIT("no malloc but hakmem's is in this process");
    if (CHECK_SHADOWED) OMIT("the sanitizer's malloc is next");
    IN_CHILD(hand_to_libc);
    int status = child_status(hand_ours_to_libc, CHILD_SECONDS);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void hand_on_beside_an_error(void) {
    foreign_configure(FOREIGN_LIBC);
    foreign_prepare();
    for (int round = 0; round < 2; round++) {
        char *block = of_libc(100);
        CHECK(dlopen("/nowhere/at/all.so", RTLD_NOW) == NULL);
        errno = 4711;
        CHECK(hak_usable_size(block) >= 100);
        hak_free(block);
        CHECK_EQ(errno, 4711);
        CHECK(dlerror() != NULL);
    }
}

TEST(what_the_loader_last_said_stays) {
    if (dlsym(RTLD_NEXT, "malloc") == NULL) OMIT("no malloc but hakmem's is in this process");
    if (CHECK_SHADOWED) OMIT("the sanitizer's malloc is next");
    IN_CHILD(hand_on_beside_an_error);
}
