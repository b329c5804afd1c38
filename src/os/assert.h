/* assert.h - assertions. Checked builds stop at the first condition that is false; in the others
 * the condition is compiled for its types and then dropped. */
#ifndef HAK_OS_ASSERT_H
#define HAK_OS_ASSERT_H

#include "os/os.h"

#ifdef HAK_CHECKED
#define HAK_ASSERT(condition)                                                                      \
    ((condition) ? (void)0 : os_panic("%s:%d: broken: %s", __FILE__, __LINE__, #condition))
#else
#define HAK_ASSERT(condition) ((void)sizeof(condition))
#endif

#endif
