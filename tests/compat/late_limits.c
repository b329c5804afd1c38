/* late_limits.c - setrlimit in the middle of a process's life, while its threads allocate.
 *
 * The limit of address space, or of data, falls to a little more than is in use; every thread meets refusals (NULL and
 * ENOMEM), keeps what it has, and is served again once it freed something, or once the limit rises.
 *
 * Planted defect it was seen to catch: memory whose commitment was refused is handed out (of_data).
 */
#include "child.h"
#include "work.h"

#include <stdatomic.h>
#include <sys/resource.h>

enum { THREADS = 4 };

static atomic_bool stop;
static atomic_size_t refusals, served;

static void *work_until_stopped(void *argument) {
    for (uint64_t seed = (uintptr_t)argument; !atomic_load(&stop); seed += THREADS) {
        size_t refused = work(seed, 500);
        atomic_fetch_add(&refusals, refused);
        atomic_fetch_add(&served, 500 - refused);
    }
    return NULL;
}

static size_t in_use(int resource) {
    size_t bytes = status_bytes(resource == RLIMIT_AS ? "VmSize:" : "VmData:");
    if (bytes == 0) SKIP("no /proc");
    return bytes;
}

static int limited;

/* Holds all that is to be had, which is less than MOST; the others are refused meanwhile. */
static void take_all_and_free(size_t most) {
    void **first = NULL, **block;
    size_t got = 0, size = MIB(1);
    for (; got < most; got += size) {
        errno = 0;
        if ((block = (void **)malloc(size)) != NULL) {
            memset(block, 1, size);
            *block = first;
            first = block;
            continue;
        }
        CHECK_EQ(errno, ENOMEM);
        if (size <= 1000) break;
        size /= 8;
    }
    CHECK_AT(got < most, got);
    size_t before = atomic_load(&refusals);
    while (atomic_load(&refusals) == before) usleep(1000);
    while ((block = first) != NULL) {
        first = (void **)*block;
        free(block);
    }
}

static void live_under_a_late_limit(void) {
    pthread_t threads[THREADS];
    struct rlimit before, limit;
    for (size_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, work_until_stopped, (void *)i), 0);
    CHECK_EQ(work(100, 5000), 0);
    CHECK_EQ(getrlimit(limited, &before), 0);
    for (int round = 0; round < 3; round++) {
        /* What the allocator reserved or committed earlier is in use already, and may still be had. */
        limit = (struct rlimit){in_use(limited) + MIB(24), before.rlim_max};
        CHECK_EQ(setrlimit(limited, &limit), 0);
        const size_t held = in_use(limited); /* the others may have taken more before it fell */
        take_all_and_free(held > limit.rlim_cur ? held : limit.rlim_cur);
        size_t served_before = atomic_load(&served);
        while (atomic_load(&served) == served_before) usleep(1000);
        CHECK_EQ(setrlimit(limited, &before), 0);
        void *large = malloc(MIB(256));
        CHECK(large != NULL);
        free(large);
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(work(101, 3000), 0);
}

TEST(of_address_space) {
    limited = RLIMIT_AS;
    IN_CHILD(live_under_a_late_limit);
}

TEST(of_data) {
    limited = RLIMIT_DATA;
    IN_CHILD(live_under_a_late_limit);
}
