/* audit_plugin.c - LD_AUDIT: looks at every object and every binding, and allocates meanwhile. The loader gives an audit
 * library a namespace and a libc of its own, and its static TLS comes before the program's.
 * tests/system/test_loader.py runs programs with it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __thread char storage[64] __attribute__((tls_model("initial-exec")));
static unsigned long bindings;

unsigned la_version(unsigned version);
unsigned la_version(unsigned version) {
    storage[0] = 1;
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned la_objopen(struct link_map *map, Lmid_t where, uintptr_t *cookie);
unsigned la_objopen(struct link_map *map, Lmid_t where, uintptr_t *cookie) {
    (void)where;
    (void)cookie;
    char *name = strdup(map->l_name);
    free(name);
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags,
                       const char *name);
uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags,
                       const char *name) {
    (void)index;
    (void)from;
    (void)to;
    (void)flags;
    bindings += strlen(name) > 0;
    return symbol->st_value;
}

/* The program is about to end: proof that the audit took place. */
void la_activity(uintptr_t *cookie, unsigned flag);
void la_activity(uintptr_t *cookie, unsigned flag) {
    static int said;
    (void)cookie;
    if (flag != LA_ACT_CONSISTENT || said++ > 0) return;
    static const char line[] = "audited\n";
    ssize_t written = write(STDERR_FILENO, line, sizeof line - 1);
    (void)written;
}
