"""Who asks the kernel for what: what perf, strace and hakmem's statistics print is read right, of the right process."""

from __future__ import annotations

from pathlib import Path

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.measure.kernel import (
    Caller,
    Frame,
    Subject,
    calls_by_caller,
    chain_text,
    faults_by_caller,
    perf_events,
    statistics_callers,
    strace_callers,
    strace_calls,
)
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.runner import Arm
from toolbox import cannot_run, compile_c, run, tool

LIBRARY = "/opt/libhakmem.so"

PERF = """\
perf-exec     0 PERF_RECORD_COMM: perf-exec:12/12
env 12 PERF_RECORD_COMM exec: env:12/12
env 12
\t    7f9999 [unknown] (/usr/bin/env)

random_mixed 12 PERF_RECORD_COMM exec: random_mixed:12/12
random_mixed 12
\t    7f0010 slab_take (/opt/libhakmem.so)
\t    7f0020 refill (/opt/libhakmem.so)
\t    7f0030 malloc_slow (/opt/libhakmem.so)
\t    400010 replace_run (/bench/random_mixed)

random_mixed    12 PERF_RECORD_COMM: worker 3:12/13
worker 3 12
\t    400020 replace_run (/bench/random_mixed)

random_mixed 14
\t    400030 child_run (/bench/random_mixed)

ls 14 PERF_RECORD_COMM exec: ls:14/14
ls 14
\t    7f9999 [unknown] (/usr/bin/ls)

random_mixed 12
"""


def test_perfs_stacks_are_read_of_the_first_process_and_all_its_threads() -> None:
    events = list(perf_events(PERF.splitlines()))
    assert [[frame.function for frame in frames] for frames in events] == [
        ["slab_take", "refill", "malloc_slow", "replace_run"],
        ["replace_run"],
        [],
    ]
    assert events[0][0] == Frame("slab_take", LIBRARY)


def test_a_chain_goes_down_to_the_entry_point_and_no_further() -> None:
    first, second, _ = perf_events(PERF.splitlines())
    assert chain_text(first, LIBRARY) == "slab_take < refill < malloc_slow"
    assert chain_text(second, LIBRARY) == "replace_run of random_mixed"
    assert chain_text([], LIBRARY) == "outside the allocator"
    deep = [Frame(f"f{number}", LIBRARY) for number in range(9)]
    assert chain_text(deep, LIBRARY) == "f0 < f1 < f2 < ... < f8"


STRACE = """\
12 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f0000
 > /usr/lib/ld-linux-x86-64.so.2(_dl_map+0x20) [0x1020]
12 madvise(0x7f0000, 65536, MADV_DONTNEED) = 0
 > /usr/lib/libc.so.6(madvise+0x7) [0x10b8d7]
 > /opt/libhakmem.so(os_purge+0x20) [0x3020]
 > /opt/libhakmem.so(free+0x9) [0x3040]
 > /bench/random_mixed(main+0x1) [0x401]
12 clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0} => {parent_tid=[13]}, 88) = 13
[pid 13] clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0} <unfinished ...>
[pid 14] rseq(0x7f0000, 0x20, 0, 0x53053053) = 0
[pid 13] <... clone3 resumed> => {parent_tid=[14]}, 88) = 14
12 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f0000) = 15
15 brk(NULL) = 0x55ed44
[pid 13] madvise(0x7f0000, 65536, MADV_DONTNEED <unfinished ...>
[pid 14] read(3, "", 1) = 0
 > /bench/random_mixed(main+0x1) [0x401]
[pid 14] futex(0x7f0000, FUTEX_WAIT, 2, NULL <unfinished ...>
[pid 13] <... madvise resumed>) = 0
 > /usr/lib/libc.so.6(madvise+0x7) [0x10b8d7]
 > /opt/libhakmem.so(os_purge+0x20) [0x3020]
 > /opt/libhakmem.so(free+0x9) [0x3040]
12 +++ exited with 0 +++
"""


def test_straces_stacks_are_read_of_the_first_process_and_all_its_threads() -> None:
    assert strace_callers(STRACE.splitlines(), LIBRARY) == [
        Caller("madvise", "os_purge < free", 2),
        Caller("clone3", "outside the allocator", 2),
        *(Caller(name, "outside the allocator", 1) for name in ("mmap", "rseq", "clone", "read", "futex")),
    ]


CROSSED = """
#include <pthread.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) static void rest(void) { nanosleep(&(struct timespec){0, 2000000}, NULL); }
__attribute__((noinline)) static int ask(void) { return getppid(); }
static void *sleeper(void *unused) { for (int i = 0; i < 20; i++) rest(); return unused; }
int main(void) {
    pthread_t thread;
    int sum = 0;
    pthread_create(&thread, NULL, sleeper, NULL);
    for (int i = 0; i < 300; i++) sum += ask() & 1;
    pthread_join(thread, NULL);
    return sum < 0;
}
"""


def test_each_thread_has_its_own_stacks(tmp_path: Path) -> None:
    """By strace itself: one thread's calls come while another is in one."""
    program, output = compile_c(tmp_path / "crossed", CROSSED, "-pthread", "-O0"), tmp_path / "calls"
    line = [tool("strace"), "-f", "-k", "-o", str(output), str(program)]
    if run(*line).returncode != 0:
        cannot_run("strace -k may not trace here")
    text = output.read_text(errors="replace")
    assert "nanosleep resumed>" in text
    callers = {"getppid": set[str](), "clock_nanosleep": set[str]()}
    for call in strace_calls(text.splitlines()):
        if call.name in callers:
            callers[call.name] |= {one.function for one in call.frames} & {"rest", "ask"}
    assert callers == {"getppid": {"ask"}, "clock_nanosleep": {"rest"}}


NAMED = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define BYTES (512 * 4096)
__attribute__((noinline)) static void touch_in_thread(char *at) { for (int i = 0; i < BYTES; i += 4096) at[i] = 1; }
__attribute__((noinline)) static void touch_in_child(char *at) {
    for (int i = 0; i < BYTES; i += 4096) { at[i] = 1; getpgid(0); }
}
static void *map(void) { return mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void *work(void *unused) {
    pthread_setname_np(pthread_self(), "a worker");
    touch_in_thread(map());
    for (int i = 0; i < 300; i++) getsid(0);
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    if (fork() == 0) { touch_in_child(map()); _exit(0); }
    wait(NULL);
    return 0;
}
"""


def named_subject(folder: Path) -> Subject:
    program = compile_c(folder / "named", NAMED, "-pthread", "-O0", "-fno-omit-frame-pointer")
    return Subject((str(program),), Arm(Peer("glibc", "", None, "")), cpus_allowed(), folder)


def test_faults_are_counted_of_the_first_process_whatever_its_threads_call_themselves(tmp_path: Path) -> None:
    tool("perf")
    told = faults_by_caller(named_subject(tmp_path))
    if told.note:
        cannot_run(told.note)
    counts = {one.who: one.count for one in told.callers}
    assert counts["touch_in_thread of named"] >= 512
    assert "touch_in_child of named" not in counts


def test_calls_are_counted_of_the_first_process_and_all_its_threads(tmp_path: Path) -> None:
    tool("strace")
    told = calls_by_caller(named_subject(tmp_path))
    if not told.callers:
        cannot_run(told.note)
    counts = {one.what: one.count for one in told.callers}
    assert counts["getsid"] == 300
    assert "getpgid" not in counts


def test_hakmems_own_counters_are_read() -> None:
    lines = [
        "hakmem: statistics of random_mixed (pid 1)",
        "  page faults     minor 12, major 0",
        "  system calls    madvise                      7, refused 0",
        "  system calls    mmap of a span              12, refused 1",
        "hakmem: statistics of child (pid 2)",
        "  system calls    madvise                      9, refused 0",
    ]
    assert statistics_callers(lines, 1) == [
        Caller("madvise", "hakmem", 7),
        Caller("mmap of a span", "hakmem", 12),
    ]
