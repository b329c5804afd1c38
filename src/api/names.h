/* names.h - one body, two names: every entry point exists as hak_<name>, and under the name that libc
 * gives it unless HAK_NO_LIBC_NAMES is defined (builds with sanitizers, which bring their own malloc). */
#ifndef HAK_API_NAMES_H
#define HAK_API_NAMES_H

#include "base/attributes.h"

#ifdef HAK_NO_LIBC_NAMES
#define HAK_LIBC_NAME(result, name, parameters, hak_name)
#else
#define HAK_LIBC_NAME(result, name, parameters, hak_name)                                           \
    HAK_EXPORT result name parameters HAK_ALIAS(hak_name);
#endif

#endif
