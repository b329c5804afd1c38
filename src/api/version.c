/* version.c - what is running. */
#include "hakmem/hakmem.h"

#include "api/names.h"
#include "api/start.h"

HAK_EXPORT const char *hak_version(void) { return start_page.library; }
