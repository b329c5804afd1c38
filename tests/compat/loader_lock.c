/* loader_lock.c - an unwinder holds the dynamic loader's lock (the callback of dl_iterate_phdr), and allocates there,
 * while other threads open and close libraries, which allocates under the loader's other locks, and start and end.
 *
 *     loader_lock [LIBRARY]      a library that nobody else keeps open; glibc's libresolv.so.2 if none is named
 *
 * The callback also frees so much that a thread is started to give it back: that must not wait for a lock which the
 * other thread holds while it waits for this one's. A watchdog ends a deadlock.
 *
 * Planted defect it was seen to catch, with a plugin that has thread-local storage: a thread started in the callback
 * (a deadlock, by the watchdog).
 */
#define CHECK_NO_MAIN
#include "work.h"

#include <link.h>
#include <stdatomic.h>
#include <time.h>

enum { MILLISECONDS = 250, WATCHDOG_SECONDS = 60 };

static const char *library = "libresolv.so.2";
static atomic_bool stop;
static atomic_size_t objects_seen, times_opened, threads_ended;

static int allocate_under_the_lock(struct dl_phdr_info *object, size_t size, void *counter) {
    size_t *calls = counter;
    (void)size;
    char *name = strdup(object->dlpi_name);
    CHECK(name != NULL && strcmp(name, object->dlpi_name) == 0);
    CHECK_EQ(work(*calls, 100), 0);
    if (*calls % 50 == 0) work_leave_dirty(40, MIB(1));
    free(name);
    ++*calls;
    atomic_fetch_add(&objects_seen, 1);
    return 0;
}

static void *iterate(void *unused) {
    size_t calls = 0;
    while (!atomic_load(&stop)) dl_iterate_phdr(allocate_under_the_lock, &calls);
    return unused;
}

static void *open_and_close(void *unused) {
    while (!atomic_load(&stop)) {
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL) check_say("     %s", dlerror());
        CHECK(handle != NULL);
        /* A plugin with thread-local storage of its own: libc allocates it at the first use. */
        int (*use)(void) = (int (*)(void))(uintptr_t)dlsym(handle, "use_thread_storage");
        if (use != NULL) CHECK(use() >= 1); /* more while the other keeps it open */
        CHECK(dlopen("no_such_library.so", RTLD_NOW) == NULL);
        CHECK_EQ(dlclose(handle), 0);
        atomic_fetch_add(&times_opened, 1);
    }
    return unused;
}

static void *live_shortly(void *argument) {
    CHECK_EQ(work((uintptr_t)argument, 200), 0);
    return NULL;
}

static void *start_threads(void *unused) {
    for (size_t i = 0; !atomic_load(&stop); i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, live_shortly, (void *)i), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        atomic_fetch_add(&threads_ended, 1);
    }
    return unused;
}

int main(int argc, char **argv) {
    static void *(*const bodies[])(void *) = {iterate, iterate, open_and_close, open_and_close,
                                              start_threads};
    pthread_t threads[sizeof bodies / sizeof bodies[0]];
    check_now.name = "loader_lock";
    if (argc > 1) library = argv[1];
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    void *probe = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (probe == NULL) {
        check_say("skip loader_lock: %s", dlerror());
        return 77;
    }
    CHECK_EQ(dlclose(probe), 0);
    alarm(WATCHDOG_SECONDS);
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, bodies[i], NULL), 0);
    usleep(MILLISECONDS * 1000);
    while (objects_seen <= 20 || times_opened <= 5 || threads_ended <= 5) usleep(10000); /* or the alarm */
    atomic_store(&stop, true);
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    check_say("ok loader_lock: %zu objects seen, %zu times opened, %zu threads", objects_seen, times_opened,
              threads_ended);
    return 0;
}
