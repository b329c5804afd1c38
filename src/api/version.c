/* version.c - what is running. */
#include "hakmem/hakmem.h"

#include "api/names.h"

#define TEXT(number) #number
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

HAK_EXPORT const char *hak_version(void) {
    return VERSION(HAKMEM_VERSION_MAJOR, HAKMEM_VERSION_MINOR, HAKMEM_VERSION_PATCH);
}
