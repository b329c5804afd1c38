/* processors.c - processors with high numbers, fewer of them from one moment to the next, and a system that does not say
 * how many there are.
 *
 * sched_getcpu, getcpu, sched_getaffinity and get_nprocs are interposed: an allocator that counts or numbers
 * processors for itself is told the worst. The affinity really shrinks while threads allocate.
 *
 * Planted defect it was seen to catch: a table with a place for each of 64 processors (high_numbers).
 */
#include "child.h"
#include "work.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

/* A processor's number, and how many there are; what is asked for is counted. */
static atomic_int number, count;
static atomic_bool lying;
static atomic_size_t asked;

int sched_getcpu(void) {
    unsigned cpu = 0;
    atomic_fetch_add(&asked, 1);
    if (atomic_load(&lying)) return atomic_load(&number);
    return syscall(SYS_getcpu, &cpu, NULL, NULL) == 0 ? (int)cpu : -1;
}

int getcpu(unsigned *cpu, unsigned *node);

int getcpu(unsigned *cpu, unsigned *node) {
    int current = sched_getcpu();
    if (cpu) *cpu = (unsigned)current;
    if (node) *node = atomic_load(&lying) ? 63 : 0;
    return current < 0 ? -1 : 0;
}

/* As the kernel answers with more processors than fit the mask. */
int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set) {
    atomic_fetch_add(&asked, 1);
    if (atomic_load(&lying)) {
        errno = EINVAL;
        return -1;
    }
    return syscall(SYS_sched_getaffinity, process, bytes, set) < 0 ? -1 : 0;
}

int get_nprocs(void) {
    atomic_fetch_add(&asked, 1);
    return atomic_load(&lying) ? atomic_load(&count) : 2;
}

int get_nprocs_conf(void) { return get_nprocs(); }

static void *work_in_thread(void *argument) {
    CHECK_EQ(work((uintptr_t)argument, 2000), 0);
    return NULL;
}

static void work_in_threads(void) {
    pthread_t threads[6];
    for (size_t i = 0; i < 6; i++) CHECK_EQ(pthread_create(&threads[i], NULL, work_in_thread, (void *)i), 0);
    for (size_t i = 0; i < 6; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    work_leave_dirty(64, MIB(1));
    work_give_back();
}

TEST(high_numbers) {
    static const int numbers[] = {0, 63, 64, 255, 1023, 1024, 4095, 8191, 1 << 20, INT32_MAX, -1};
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    atomic_store(&lying, true);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        atomic_store(&number, numbers[i]);
        atomic_store(&count, numbers[i]);
        work_in_threads();
    }
    atomic_store(&lying, false);
    CHECK_AT(sched_getcpu() >= 0 && atomic_load(&asked) > 0, asked); /* the functions are the ones above */
    CHECK(dlsym(RTLD_DEFAULT, "sched_getcpu") == (void *)(uintptr_t)&sched_getcpu);
}

static atomic_bool stop;
static atomic_size_t done[4];

static void *work_until_stopped(void *argument) {
    size_t thread = (uintptr_t)argument;
    while (!atomic_load(&stop)) {
        CHECK_EQ(work(thread, 200), 0);
        atomic_fetch_add(&done[thread], 1);
    }
    return NULL;
}

/* The processors that this process may use, one set for each. */
static size_t single_sets(cpu_set_t *all, cpu_set_t *sets, size_t most) {
    size_t found = 0;
    CPU_ZERO(all);
    CHECK_EQ(sched_getaffinity(0, sizeof *all, all), 0);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && found < most; cpu++) {
        if (!CPU_ISSET(cpu, all)) continue;
        CPU_ZERO(&sets[found]);
        CPU_SET(cpu, &sets[found]);
        found++;
    }
    return found;
}

/* All threads on one processor wait for each other's locks by its time slices. */
TEST(the_affinity_shrinks_and_moves) {
    cpu_set_t all, sets[8];
    pthread_t threads[4];
    size_t processors = single_sets(&all, sets, 8);
    if (processors < 2) SKIP("one processor");
    for (size_t i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, work_until_stopped, (void *)i), 0);
    for (size_t round = 0; round < 60; round++) {
        for (size_t i = 0; i < 4; i++) {
            const cpu_set_t *set = round % 3 == 0   ? &sets[round % processors]
                                   : round % 3 == 1 ? &sets[i % processors]
                                                    : &all;
            CHECK_EQ(pthread_setaffinity_np(threads[i], sizeof *set, set), 0);
        }
        CHECK_EQ(pthread_setaffinity_np(pthread_self(), sizeof all, &sets[round % processors]), 0);
        CHECK_EQ(work(round, 300), 0);
        usleep(5000);
    }
    size_t before[4];
    for (size_t i = 0; i < 4; i++) before[i] = atomic_load(&done[i]);
    CHECK_EQ(pthread_setaffinity_np(pthread_self(), sizeof all, &all), 0);
    for (size_t i = 0; i < 4; i++) /* all of them still get on */
        for (int wait = 0; atomic_load(&done[i]) == before[i]; wait++)
            CHECK_AT(wait < 10000 && usleep(1000) == 0, i);
    atomic_store(&stop, true);
    for (size_t i = 0; i < 4; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}
