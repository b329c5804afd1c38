/* thread_code_test.c - whether an address is code of libc or of the dynamic loader. Without fail_calls.c: libc is found by
 * its pthread_create.
 *
 * Planted defects it was seen to catch:
 *   the loader is forgotten                      whose_code_it_is
 *   every object, or the program, is libc        whose_code_it_is
 *   no callback is one, or none that signs its return address   inside_a_callback_of_the_loader
 *   a fibre's stack passes for a thread's        what_lies_behind_the_stack_of_a_fibre
 *   what lies before that is taken to be there   what_lies_between_a_fibre_and_the_stack_of_its_thread
 *   what lies behind a thread's is               what_lies_behind_the_stack_of_a_thread
 */
#include "check.h"
#include "os/os.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK_BYTES = 256 * 1024, FIBRE_BYTES = 64 * 1024 };

static const void *code_of(const char *name) { return dlsym(RTLD_DEFAULT, name); }

TEST(whose_code_it_is) {
    static int data;
    os_find_libc(); /* once more changes nothing */
    if (getauxval(AT_BASE) == 0) OMIT("linked statically");
    if (CHECK_SHADOWED) OMIT("the sanitizer's functions stand before libc's");
    static const char *const of_libc[] = {"qsort", "getaddrinfo", "setlocale", "strtod", "getopt"};
    for (size_t i = 0; i < 5; i++)
        CHECK_AT(code_of(of_libc[i]) != NULL && os_is_libc(code_of(of_libc[i])), i);
    CHECK(os_is_libc((const void *)(getauxval(AT_BASE) + 4096))); /* the loader */
    CHECK(os_is_libc_alone(code_of(of_libc[0])) && !os_is_libc_alone((const void *)(uintptr_t)&os_is_libc));
    CHECK(!os_is_libc((const void *)(uintptr_t)&os_is_libc));
    CHECK(!os_is_libc((const void *)(uintptr_t)&code_of));
    CHECK(!os_is_libc(__builtin_return_address(0)));
    CHECK(!os_is_libc(&data) && !os_is_libc(NULL) && !os_is_libc((const void *)UINTPTR_MAX));
    void *other = dlopen("libm.so.6", RTLD_NOW);
    if (other != NULL && dlsym(other, "cbrt") != NULL) CHECK(!os_is_libc(dlsym(other, "cbrt")));
}

/* As far from the loader's own frame as a program may get. */
static __attribute__((noinline)) bool look_from_afar(size_t bytes) {
    volatile char frame[1024] = {0}; /* what earlier calls left there would pass for frames */
    bool seen = bytes <= sizeof frame ? os_may_be_loader_callback() : look_from_afar(bytes - sizeof frame);
    return seen && frame[0] == 0;
}

#if defined(__aarch64__) && defined(__GNUC__)
__attribute__((target("branch-protection=pac-ret")))
#endif
static int call_back(struct dl_phdr_info *object, size_t size, void *seen) {
    (void)object;
    (void)size;
    errno = 4711;
    *(bool *)seen = os_may_be_loader_callback() && look_from_afar(500000);
    return errno == 4711 ? 1 : 2;
}

TEST(inside_a_callback_of_the_loader) {
    bool seen = false;
    os_find_libc();
    if (getauxval(AT_BASE) == 0) OMIT("linked statically");
    CHECK(!os_may_be_loader_callback());
    CHECK_EQ(dl_iterate_phdr(call_back, &seen), 1);
    CHECK(CHECK_SHADOWED || seen);
    CHECK(!look_from_afar(20000));
}

#ifdef __GLIBC__ /* musl has no makecontext */
static ucontext_t back, fibre;
static bool fibre_saw;

static void look_in_fibre(void) { fibre_saw = os_may_be_loader_callback(); }

/* Somebody may unmap it at any time, so it is not read; a callback that runs there would not be seen. */
TEST(what_lies_behind_the_stack_of_a_fibre) {
    os_find_libc();
    if (getauxval(AT_BASE) == 0) OMIT("linked statically");
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *stack = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    CHECK_EQ(getcontext(&fibre), 0);
    fibre.uc_stack.ss_sp = stack;
    fibre.uc_stack.ss_size = 4 * page;
    fibre.uc_link = &back;
    makecontext(&fibre, look_in_fibre, 0);
    CHECK_EQ(swapcontext(&back, &fibre), 0);
    CHECK(fibre_saw);
    CHECK(!os_may_be_loader_callback());
    munmap(stack, 8 * page);
}

/* Close below the stack of its thread, so that it could be a part of that, if nothing were missing between. */
static void *look_in_fibre_below(void *fibre_stack) {
    os_find_libc();
    CHECK_EQ(getcontext(&fibre), 0);
    fibre.uc_stack.ss_sp = fibre_stack;
    fibre.uc_stack.ss_size = FIBRE_BYTES;
    fibre.uc_link = &back;
    makecontext(&fibre, look_in_fibre, 0);
    CHECK_EQ(swapcontext(&back, &fibre), 0);
    return NULL;
}

TEST(what_lies_between_a_fibre_and_the_stack_of_its_thread) {
    pthread_attr_t attributes;
    pthread_t thread;
    if (getauxval(AT_BASE) == 0) OMIT("linked statically");
    fibre_saw = true;
    char *fibre_stack = mmap(NULL, 2 * FIBRE_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fibre_stack != MAP_FAILED);
    CHECK_EQ(munmap(fibre_stack + FIBRE_BYTES, FIBRE_BYTES), 0);
    CHECK_EQ(pthread_attr_init(&attributes), 0);
    CHECK_EQ(pthread_attr_setstack(&attributes, fibre_stack + 2 * FIBRE_BYTES, STACK_BYTES), 0);
    CHECK_EQ(pthread_create(&thread, &attributes, look_in_fibre_below, fibre_stack), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(!fibre_saw);
    pthread_attr_destroy(&attributes);
    munmap(fibre_stack, FIBRE_BYTES);
    munmap(fibre_stack + 2 * FIBRE_BYTES, STACK_BYTES);
}
#endif

static int returns_to(struct dl_phdr_info *object, size_t size, void *address) {
    (void)object;
    (void)size;
    *(const void **)address = __builtin_return_address(0);
    return 1;
}

static void *look_from_thread(void *saw) {
    os_find_libc(); /* as where a thread loads the library: it is not the first one for that */
    *(bool *)saw = os_may_be_loader_callback();
    return NULL;
}

/* Behind a thread's stack lies what is others', who may unmap it meanwhile: here, what looks like frames of the loader. */
TEST(what_lies_behind_the_stack_of_a_thread) {
    const void *loader = NULL;
    bool saw = true;
    pthread_attr_t attributes;
    pthread_t thread;
    os_find_libc();
    if (getauxval(AT_BASE) == 0) OMIT("linked statically");
    CHECK_EQ(dl_iterate_phdr(returns_to, &loader), 1);
    char *stack = mmap(NULL, 2 * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    for (size_t at = STACK_BYTES; at < 2 * STACK_BYTES; at += sizeof loader) memcpy(stack + at, &loader, sizeof loader);
    CHECK_EQ(pthread_attr_init(&attributes), 0);
    CHECK_EQ(pthread_attr_setstack(&attributes, stack, STACK_BYTES), 0);
    CHECK_EQ(pthread_create(&thread, &attributes, look_from_thread, &saw), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(!saw);
    pthread_attr_destroy(&attributes);
    munmap(stack, 2 * STACK_BYTES);
}
