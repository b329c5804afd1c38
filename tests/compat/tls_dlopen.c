/* tls_dlopen.c - a program opens twenty plugins with 64 bytes of static TLS each, then the allocator.
 *
 *     tls_dlopen libhakmem.so [COUNT]        not preloaded: started by tests/system/test_loader.py
 *
 * The loader keeps little static TLS for what is opened late (about 1.6 KiB in glibc): an allocator
 * that wants more than its share cannot be opened then. What it exports must work beside the
 * program's own malloc.
 *
 * Planted defect that it catches: tests/defects/much_static_tls.toml.
 */
#define CHECK_NO_MAIN
#include "beside.h" /* first: it says _GNU_SOURCE */

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
    char path[PATH_MAX];
    check_now.name = "tls_dlopen";
    if (argc < 2) return 2;
    int count = argc > 2 ? atoi(argv[2]) : 20;
    path_beside(path, "compat", "tls_plugin.so");
    for (int i = 0; i < count; i++) {
        void *plugin = open_copy(path, i);
        CHECK(plugin != NULL);
        CHECK_EQ(FUNCTION(plugin, "plugin_address", address_function)()[0], 1);
    }
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
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
    check_say("ok tls_dlopen: %d plugins, then %s", count, argv[1]);
    return 0;
}
