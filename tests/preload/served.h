/* served.h - proof that hakmem serves this process, for the programs that run under LD_PRELOAD or are
 * linked with libhakmem.
 *
 * With EXPECT_HAKMEM=1 in the environment it must; without, the same program runs on any malloc.
 */
#ifndef HAK_TESTS_SERVED_H
#define HAK_TESTS_SERVED_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include <dlfcn.h>

#ifdef __cplusplus
extern "C" {
#endif
extern const char *hak_version(void) __attribute__((weak));
extern void *hak_malloc(size_t) __attribute__((weak));
#ifdef __cplusplus
}
#endif

/* malloc, as this program calls it, is hak_malloc by another name, or lies in the same object as hak_version: the
 * program may have a stub for either, and one that is linked with everything is no object that could be looked up. */
CHECK_UNUSED static bool is_served_by_hakmem(void) {
    Dl_info ours, used;
    if (hak_version == NULL) return false;
    if ((uintptr_t)&malloc == (uintptr_t)&hak_malloc) return true;
    return dladdr((void *)(uintptr_t)&hak_version, &ours) && dladdr((void *)(uintptr_t)&malloc, &used) &&
           ours.dli_fbase == used.dli_fbase;
}

CHECK_UNUSED static bool is_hakmem_expected(void) {
    const char *value = getenv("EXPECT_HAKMEM");
    return value && strcmp(value, "1") == 0;
}

#ifndef CHECK_NO_MAIN
TEST(hakmem_serves_this_process) {
    if (!is_hakmem_expected()) OMIT("EXPECT_HAKMEM is not set");
    CHECK(is_served_by_hakmem());
}
#endif
#endif
