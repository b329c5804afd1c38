/* tls_dlopen.c - a program opens twenty plugins with 64 bytes of static TLS each, then the allocator.
 *
 *     tls_dlopen libtls_plugin.so libhakmem.so [COUNT]        not preloaded
 *
 * The loader keeps little static TLS for what is opened late (about 1.6 KiB in glibc): an allocator
 * that wants more than its share cannot be opened then. What it exports must work beside the
 * program's own malloc.
 *
 * Planted defect it was seen to catch: 2 KiB of initial-exec TLS in the allocator.
 */
#define CHECK_NO_MAIN
#include "check.h" /* first: it says _GNU_SOURCE */

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

/* The loader knows a file it has opened; so each plugin is a file of its own. */
static void *open_copy(const char *from, int number) {
    char path[64], buffer[4096];
    snprintf(path, sizeof path, "/tmp/tls_plugin.%d.%d.so", (int)getpid(), number);
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
    return plugin;
}

/* A function by its name: ISO C has no cast from an object's address. */
#define FUNCTION(library, name, type)                                                                        \
    __extension__({                                                                                          \
        union {                                                                                              \
            void *object;                                                                                    \
            type *function;                                                                                  \
        } found = {dlsym(library, name)};                                                                    \
        CHECK(found.object != NULL);                                                                         \
        found.function;                                                                                      \
    })

typedef char *address_function(void);
typedef void *malloc_function(size_t);
typedef void free_function(void *);
static malloc_function *our_malloc;
static free_function *our_free;

static void *use_allocator(void *unused) {
    void *blocks[200];
    for (size_t i = 0; i < 200; i++) {
        blocks[i] = our_malloc(i * 50);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, i * 50);
    }
    for (size_t i = 0; i < 200; i++) our_free(blocks[i]);
    return unused;
}

int main(int argc, char **argv) {
    check_now.name = "tls_dlopen";
    if (argc < 3) return 2;
    int count = argc > 3 ? atoi(argv[3]) : 20;
    for (int i = 0; i < count; i++) {
        void *plugin = open_copy(argv[1], i);
        if (plugin == NULL) check_say("     plugin %d: %s", i, dlerror());
        CHECK(plugin != NULL);
        CHECK_EQ(FUNCTION(plugin, "plugin_address", address_function)()[0], 1);
    }
    void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) check_say("     %s", dlerror());
    CHECK(library != NULL);
    our_malloc = FUNCTION(library, "hak_malloc", malloc_function);
    our_free = FUNCTION(library, "hak_free", free_function);
    use_allocator(NULL);
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, use_allocator, NULL), 0);
        pthread_join(thread, NULL);
    }
    check_say("ok tls_dlopen: %d plugins, then %s", count, argv[2]);
    return 0;
}
