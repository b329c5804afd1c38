/* environment.c - the environment, at any moment of the process's life. */
#include "os/os.h"

#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

extern void *__libc_stack_end __attribute__((weak));

/* libc sets environ in its own initialiser. This library comes before it (-z initfirst), and an IFUNC resolver may
 * allocate earlier still: then the environment lies behind the arguments on the stack. */
char **os_environment(void) {
    extern char **environ;
    if (environ != NULL || &__libc_stack_end == NULL || __libc_stack_end == NULL) return environ;
    const long *count = __libc_stack_end;
    return (char **)__libc_stack_end + 1 + *count + 1; /* argc, argv, NULL */
}

const char *os_variable(const char *name) {
    char **environment = os_environment();
    size_t length = strlen(name);
    if (environment == NULL || getauxval(AT_SECURE) != 0) return NULL;
    for (; *environment != NULL; environment++)
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') return *environment + length + 1;
    return NULL;
}

void os_drop_variables(const char *prefix) {
    if (getauxval(AT_SECURE) == 0) return;
    const size_t length = strlen(prefix);
    char **from = os_environment(), **to = from;
    for (; from != NULL && *from != NULL; from++)
        if (strncmp(*from, prefix, length) != 0) *to++ = *from;
    if (to != NULL) *to = NULL;
}
