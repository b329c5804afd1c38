/* beside.h - shared objects that lie beside the test programs, and their functions. */
#ifndef HAK_TESTS_BESIDE_H
#define HAK_TESTS_BESIDE_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>

/* A function by its name: ISO C has no cast from an object's address. */
#define FUNCTION(library, name, type)                                                                        \
    __extension__({                                                                                          \
        union {                                                                                              \
            void *object;                                                                                    \
            __typeof__(type) *function;                                                                      \
        } found = {dlsym(library, name)};                                                                    \
        CHECK(found.object != NULL);                                                                         \
        found.function;                                                                                      \
    })

/* The path of NAME in the folder FOLDER of the tests. Each folder of programs lies beside the others. */
CHECK_UNUSED static void path_beside(char path[PATH_MAX], const char *folder, const char *name) {
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(length > 0);
    self[length] = '\0';
    for (int levels = 0; levels < 2; levels++) *strrchr(self, '/') = '\0';
    CHECK(snprintf(path, PATH_MAX, "%s/%s/%s", self, folder, name) < PATH_MAX);
}

/* Opens a copy of the file FROM, which is gone from its folder at once: the loader knows a file that it has opened, so
 * each instance of a plugin must be a file of its own. Says why if that fails. */
CHECK_UNUSED static void *open_copy(const char *from, int number) {
    char path[64], buffer[4096];
    snprintf(path, sizeof path, "/tmp/hakmem_plugin.%d.%d.so", (int)getpid(), number);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    CHECK(in >= 0 && out >= 0);
    ssize_t length;
    while ((length = read(in, buffer, sizeof buffer)) > 0)
        CHECK_EQ(write(out, buffer, (size_t)length), length);
    close(in);
    close(out);
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    if (plugin == NULL) check_say("     copy %d of %s: %s", number, from, dlerror());
    return plugin;
}

#endif
