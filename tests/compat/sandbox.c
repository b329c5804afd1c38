/* sandbox.c - seccomp filters of four kinds: only what memory needs, every call in turn refused from the program's
 * start on, what containers refuse, and what ends a service.
 *
 * Each filter is proved to hold before the work begins. Threads get stacks of the test's own, since glibc makes its
 * stacks with mprotect.
 *
 * Planted defects it was seen to catch:
 *   where mprotect is refused every block has a mapping of its own   each_call_refused_from_the_start
 *   the clock, or a barrier, must not be refused                     only_what_memory_needs, each_call_...
 *   a refusal behind a success shows in errno                        only_what_memory_needs
 *   who cannot sleep goes on at once                                 no_thread_spins_where_sleeping_is_refused
 *   mincore is called whatever filter there is                       a_service
 */
#include "work.h"

#if __has_include(<linux/seccomp.h>) /* musl's headers do not bring the kernel's */

#include "sandbox.h"

#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

enum { THREADS = 3, STACK_BYTES = 256 << 10 };
static pthread_t threads[THREADS];
static atomic_bool begun, ended;
static atomic_size_t running, waiting;

/* Of the main thread: fewer than a thread collects before it gives them back. */
enum { FOREIGN = 50 };
static void *foreign[THREADS + 1][FOREIGN]; /* threads are numbered from 1 */

static void make_foreign(void) {
    for (size_t i = 0; i <= THREADS; i++)
        for (size_t j = 0; j < FOREIGN; j++) CHECK((foreign[i][j] = malloc(200)) != NULL);
}

/* At last it waits, and holds what others would like to have back. */
static void *work_when_begun(void *argument) {
    size_t number = (uintptr_t)argument;
    atomic_fetch_add(&running, 1);
    while (!atomic_load(&begun)) sched_yield();
    CHECK_EQ(work(number, 1500), 0);
    for (size_t j = 0; j < FOREIGN; j++) free(foreign[number][j]);
    atomic_fetch_add(&waiting, 1);
    while (!atomic_load(&ended)) usleep(1000);
    return NULL;
}

static void start_threads(void) {
    pthread_attr_t attributes;
    CHECK_EQ(pthread_attr_init(&attributes), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(stack != MAP_FAILED);
        CHECK_EQ(pthread_attr_setstack(&attributes, stack, STACK_BYTES), 0);
        CHECK_EQ(pthread_create(&threads[i], &attributes, work_when_begun, (void *)(i + 1)), 0);
    }
    pthread_attr_destroy(&attributes);
    /* glibc ends the process if a thread cannot tell the kernel of its rseq at its start. */
    while (atomic_load(&running) < THREADS) sched_yield();
}

/* However memory is had, small blocks share its pages. */
static void must_be_dense(void) {
    enum { BLOCKS = 1000 };
    static char *blocks[BLOCKS];
    size_t alone = 0;
    for (size_t i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(100)) != NULL);
    for (size_t i = 1; i < BLOCKS; i++) alone += ((uintptr_t)blocks[i] ^ (uintptr_t)blocks[i - 1]) >= 4096;
    CHECK_AT(alone < BLOCKS / 4, alone);
    for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
}

/* More than any thread may keep, so that it must be given back, or be tried to be. */
static void work_with_threads(void) {
    make_foreign();
    must_be_dense();
    atomic_store(&begun, true);
    for (int round = 0; round < 2; round++) {
        CHECK_EQ(work((uint64_t)round + 10, 1000), 0);
        work_leave_dirty(24, MIB(2));
        work_leave_dirty(4000, 3000);
        work_give_back();
    }
    while (atomic_load(&waiting) < THREADS) sched_yield();
    work_give_back();
    atomic_store(&ended, true);
    for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(work(20, 2000), 0);
}

/* ---- only what memory needs ---------------------------------------------------------------------------- */

static int error;

static void work_in_the_narrowest(void) {
    static const struct sandbox_rule allowed[] = {
        {.call = SYS_mmap},       {.call = SYS_munmap}, {.call = SYS_brk},   {.call = SYS_futex},
        {.call = SYS_exit_group}, {.call = SYS_exit},   {.call = SYS_write}, {.call = SYS_rt_sigreturn},
    };
    start_threads();
    sandbox_allow_only(SANDBOX_RULES(allowed), error);
    errno = 0;
    CHECK(madvise(NULL, 0, MADV_NORMAL) == -1 && errno == error);
    work_with_threads();
}

TEST(only_what_memory_needs) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    for (size_t i = 0; i < 2; i++) {
        error = i ? ENOSYS : EPERM;
        IN_CHILD(work_in_the_narrowest);
    }
}

/* ---- one call refused, from the start on --------------------------------------------------------------- */

/* glibc's loader cannot do without mprotect to read-only; what makes memory usable is refused. */
static const struct sandbox_rule singles[] = {
    {SYS_mprotect, 2, PROT_READ | PROT_WRITE, true},
    {.call = SYS_madvise},
    {.call = SYS_mremap},
    {.call = SYS_getrandom},
    {.call = SYS_rseq},
    {.call = SYS_membarrier},
    {.call = SYS_mincore},
    {.call = SYS_sched_getaffinity},
    {.call = SYS_prctl},
    {.call = SYS_brk},
    {.call = SYS_munmap},
    {.call = SYS_nanosleep},
    {.call = SYS_clock_nanosleep},
    {.call = SYS_clone3},
};

/* The number of the refused call and its error stand in the environment. */
HELPER(live_without_a_call) {
    int call = atoi(getenv("SANDBOX_CALL")), refusal = atoi(getenv("SANDBOX_ERROR"));
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    errno = 0;
    CHECK(syscall(call, 0, 0, PROT_READ | PROT_WRITE, 0, 0, 0) == -1 && errno == refusal);
    /* With EPERM for clone3 glibc gives up threads. */
    if (call == SYS_clone3 && refusal == EPERM) return;
    start_threads();
    work_with_threads();
}

static const struct sandbox_rule *single;

static void become_one_without(void) {
    char number[16];
    snprintf(number, sizeof number, "%d", single->call);
    setenv("SANDBOX_CALL", number, 1);
    snprintf(number, sizeof number, "%d", error);
    setenv("SANDBOX_ERROR", number, 1);
    sandbox_refuse(single, 1, error);
    become_helper("live_without_a_call");
}

TEST(each_call_refused_from_the_start) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");
    for (size_t i = 0; i < 2 * sizeof singles / sizeof singles[0]; i++) {
        single = &singles[i / 2];
        error = i % 2 ? ENOSYS : EPERM;
        int status = child_status(become_one_without, CHILD_SECONDS);
        if (status != 0)
            check_say("     call %d refused with %s: status %#x", single->call, strerror(error), status);
        CHECK_EQ(status, 0);
    }
}

/* ---- sleeping refused -------------------------------------------------------------------------------------- */

static uint64_t processor_ms(void) {
    struct timespec used;
    CHECK_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
    return (uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000;
}

/* The filter comes after the purge thread has begun, and holds for it. */
static void be_idle_without_sleep(void) {
    static const struct sandbox_rule sleeps[] = {{.call = SYS_nanosleep}, {.call = SYS_clock_nanosleep}};
    enum { IDLE_MS = 1500 };
    work_leave_dirty(64, MIB(2));
    sandbox_refuse(SANDBOX_RULES(sleeps), error);
    work_leave_dirty(64, MIB(2));
    const uint64_t before_ms = processor_ms();
    CHECK_EQ(poll(NULL, 0, IDLE_MS), 0);
    CHECK_AT(processor_ms() - before_ms < IDLE_MS / 3, processor_ms() - before_ms);
    CHECK_EQ(work(50, 2000), 0);
}

TEST(no_thread_spins_where_sleeping_is_refused) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    for (size_t i = 0; i < 2; i++) {
        error = i ? ENOSYS : EPERM;
        IN_CHILD(be_idle_without_sleep);
    }
}

/* ---- a container ---------------------------------------------------------------------------------------- */

#define NAMESPACES                                                                                           \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |            \
     CLONE_NEWNET)

/* As the usual container runtimes do it for a process without capabilities. */
static const struct sandbox_rule container[] = {
    {.call = SYS_acct},
    {.call = SYS_add_key},
    {.call = SYS_bpf},
    {.call = SYS_clock_adjtime},
    {.call = SYS_clock_settime},
    {SYS_clone, 0, NAMESPACES, false},
    {.call = SYS_delete_module},
    {.call = SYS_fanotify_init},
    {.call = SYS_finit_module},
    {.call = SYS_fsconfig},
    {.call = SYS_fsmount},
    {.call = SYS_fsopen},
    {.call = SYS_get_mempolicy},
    {.call = SYS_init_module},
    {.call = SYS_kcmp},
    {.call = SYS_kexec_load},
    {.call = SYS_keyctl},
    {.call = SYS_lookup_dcookie},
    {.call = SYS_mbind},
    {.call = SYS_mount},
    {.call = SYS_move_mount},
    {.call = SYS_move_pages},
    {.call = SYS_name_to_handle_at},
    {.call = SYS_nfsservctl},
    {.call = SYS_open_by_handle_at},
    {.call = SYS_open_tree},
    {.call = SYS_perf_event_open},
    {.call = SYS_personality},
    {.call = SYS_pivot_root},
    {.call = SYS_process_madvise},
    {.call = SYS_process_vm_readv},
    {.call = SYS_process_vm_writev},
    {.call = SYS_ptrace},
    {.call = SYS_quotactl},
    {.call = SYS_reboot},
    {.call = SYS_request_key},
    {.call = SYS_set_mempolicy},
    {.call = SYS_setns},
    {.call = SYS_settimeofday},
    {.call = SYS_swapoff},
    {.call = SYS_swapon},
    {.call = SYS_syslog},
    {.call = SYS_umount2},
    {.call = SYS_unshare},
    {.call = SYS_userfaultfd},
    {.call = SYS_vhangup},
    {.call = SYS_vmsplice},
};

static void *work_at_once(void *unused) {
    CHECK_EQ(work(40, 2000), 0);
    return unused;
}

static void work_as_child(void) { CHECK_EQ(work(30, 2000), 0); }

HELPER(live_in_a_container) {
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    errno = 0;
    CHECK(unshare(CLONE_NEWUSER) == -1 && errno == EPERM);
    errno = 0;
    CHECK(syscall(SYS_clone3, NULL, 0) == -1 && errno == ENOSYS);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, work_at_once, NULL), 0); /* by clone, which is looked at */
    CHECK_EQ(pthread_join(thread, NULL), 0);
    start_threads();
    IN_CHILD(work_as_child);
    work_with_threads();
}

static void become_contained(void) {
    static const struct sandbox_rule clone3 = {.call = SYS_clone3};
    sandbox_refuse(&clone3, 1, ENOSYS); /* its flags cannot be looked at: programs shall use clone */
    sandbox_refuse(SANDBOX_RULES(container), EPERM);
    become_helper("live_in_a_container");
}

TEST(a_container) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");
    IN_CHILD(become_contained);
}

/* ---- a service ------------------------------------------------------------------------------------------ */

/* systemd ends a service at any call outside the sets that its unit allows. Of what is outside @system-service without
 * @privileged and @resources, the usual sets, these have to do with memory, threads or processors. */
static const struct sandbox_rule deadly[] = {
    {.call = SYS_bpf},
    {.call = SYS_ioprio_set},
    {.call = SYS_mbind},
    {.call = SYS_migrate_pages},
    {.call = SYS_mincore},
    {.call = SYS_move_pages},
    {.call = SYS_perf_event_open},
    {.call = SYS_pkey_alloc},
    {.call = SYS_pkey_mprotect},
    {.call = SYS_process_madvise},
    {.call = SYS_ptrace},
    {.call = SYS_sched_setaffinity},
    {.call = SYS_sched_setattr},
    {.call = SYS_sched_setparam},
    {.call = SYS_sched_setscheduler},
    {.call = SYS_set_mempolicy},
    {.call = SYS_setpriority},
    {.call = SYS_swapon},
};

/* As much as makes the allocator ask what is resident. */
static void hold_much(size_t count, size_t bytes) {
    char **blocks = malloc(count * sizeof *blocks);
    CHECK(blocks != NULL);
    for (size_t i = 0; i < count; i++) {
        CHECK((blocks[i] = malloc(bytes)) != NULL);
        blocks[i][0] = 'x';
    }
    for (size_t i = 0; i < count; i++) free(blocks[i]);
    free(blocks);
}

HELPER(live_as_a_service) {
    enum { REST_MS = 1500 };
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    start_threads();
    hold_much(40000, 4000);
    hold_much(300, MIB(1));
    hold_much(40, MIB(10));
    work_with_threads();
    CHECK_EQ(poll(NULL, 0, REST_MS), 0);
    CHECK_EQ(work(60, 2000), 0);
}

static void become_a_service(void) {
    sandbox_enter(SANDBOX_RULES(deadly), SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    become_helper("live_as_a_service");
}

TEST(a_service) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");
    IN_CHILD(become_a_service);
}

#else
TEST(only_what_memory_needs) { OMIT("no headers of the kernel"); }
#endif
