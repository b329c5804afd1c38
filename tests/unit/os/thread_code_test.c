/* thread_code_test.c - whether an address is code of libc or of the dynamic loader. Without fail_calls.c: libc is found by
 * its pthread_create.
 *
 * Planted defects it was seen to catch:
 *   the loader is forgotten                      whose_code_it_is
 *   every object, or the program, is libc        whose_code_it_is
 */
#include "check.h"
#include "os/os.h"

#include <dlfcn.h>
#include <sys/auxv.h>

static const void *code_of(const char *name) { return dlsym(RTLD_DEFAULT, name); }

TEST(whose_code_it_is) {
    static int data;
    os_find_libc(); /* once more changes nothing */
    if (getauxval(AT_BASE) == 0) SKIP("linked statically");
    if (CHECK_SHADOWED) SKIP("the sanitizer's functions stand before libc's");
    static const char *const of_libc[] = {"qsort", "getaddrinfo", "setlocale", "strtod", "abort"};
    for (size_t i = 0; i < 5; i++) CHECK_AT(code_of(of_libc[i]) != NULL && os_is_libc(code_of(of_libc[i])), i);
    CHECK(os_is_libc((const void *)(getauxval(AT_BASE) + 4096))); /* the loader */
    CHECK(!os_is_libc((const void *)(uintptr_t)&os_is_libc));
    CHECK(!os_is_libc((const void *)(uintptr_t)&code_of));
    CHECK(!os_is_libc(__builtin_return_address(0)));
    CHECK(!os_is_libc(&data) && !os_is_libc(NULL) && !os_is_libc((const void *)UINTPTR_MAX));
    void *other = dlopen("libm.so.6", RTLD_NOW);
    if (other != NULL && dlsym(other, "cbrt") != NULL) CHECK(!os_is_libc(dlsym(other, "cbrt")));
}
