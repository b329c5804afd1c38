"""`hakmem where`: what its tools print is read right, two results are held side by side, and a run of its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.checkout import RESULTS_VARIABLE
from hakmem_lab.cli import app
from hakmem_lab.commands.where import old_arm
from hakmem_lab.errors import LabError
from hakmem_lab.measure.kernel import (
    Caller,
    Frame,
    Sampled,
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
from hakmem_lab.reports.where import diff_lines, grids_of, prediction_text, spots_grid, where_lines
from hakmem_lab.studies.callgrind import Place
from hakmem_lab.studies.where import (
    ALLOCATOR,
    FunctionCost,
    Spot,
    Where,
    functions_of,
    source_line,
    source_shown,
    where_diff,
    where_read,
)
from lab_command import lab
from toolbox import cannot_run, compile_c, run, tool

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "/opt/libhakmem.so"

WHERE = Where(
    task="random mix, 256 slots",
    arm="hakmem",
    identity="id",
    commit="abc123",
    unit="operation",
    operations=1000,
    total=100.0,
    functions=(
        FunctionCost("random_mixed", "replace_run", 60.0),
        FunctionCost(ALLOCATOR, "free", 21.0),
        FunctionCost(ALLOCATOR, "malloc", 17.0),
    ),
    spots=(Spot("free", "src/heap/front.h", 96, 0x1234, 1.0, "cmp rax,[rip+0x10]", "if (a | b) return;"),),
    watched_operations=5000,
    faults=(Caller("page fault", "slab_take < malloc", 40),),
    calls=(Caller("madvise", "os_purge < free", 3),),
    samples=(Sampled(ALLOCATOR, "free", 0.25),),
    notes=("perf is not installed",),
)


def slower(name: str, by: float) -> Where:
    functions = tuple(
        replace(one, instructions=one.instructions + by) if one.function == name else one
        for one in WHERE.functions
    )
    return replace(WHERE, functions=functions, total=WHERE.total + by)


# ---- what tools print ---------------------------------------------------------------------------------------

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


# ---- functions and lines ------------------------------------------------------------------------------------


def test_functions_are_summed_over_their_places_and_the_allocators_named() -> None:
    costs = {
        Place(LIBRARY, "free", "a.c", 1, 16): 3.0,
        Place(LIBRARY, "free", "front.h", 9, 20): 4.0,
        Place("/bench/program", "main", "m.c", 1, 0): 5.0,
        Place("/bench/program", "noise", "m.c", 2, 0): 0.001,
    }
    assert functions_of(costs, Path(LIBRARY)) == (
        FunctionCost(ALLOCATOR, "free", 7.0),
        FunctionCost("program", "main", 5.0),
    )


def test_a_line_is_found_wherever_it_was_compiled() -> None:
    assert source_shown("/somewhere/else/src/heap/front.h") == "src/heap/front.h"
    assert source_shown("./src/heap/front.h") == "src/heap/front.h"
    assert source_shown("/usr/include/string.h") == "string.h"
    assert source_line(ROOT, "/elsewhere/src/heap/front.c", 2) == '#include "heap/front.h"'
    assert source_line(ROOT, "/elsewhere/src/heap/front.c", 0) == ""
    assert source_line(ROOT, "/elsewhere/src/heap/front.c", 10**6) == ""


# ---- side by side -------------------------------------------------------------------------------------------


def test_what_became_dearer_comes_first() -> None:
    diff = where_diff(WHERE, slower("free", 5.0))
    (change,) = diff.functions
    assert (change.name, change.difference) == ("free", 5.0)
    assert diff.predicted == pytest.approx(100 / 105)
    assert prediction_text(diff) == "-4.8%"
    assert any("free, 21.00 before, 26.00 now" in line for line in diff_lines(diff))


def test_the_same_is_no_change() -> None:
    diff = where_diff(WHERE, WHERE)
    assert diff.functions == diff.kernel == ()
    assert any("No function of the allocator takes other instructions" in line for line in diff_lines(diff))


def test_faults_and_calls_are_compared_for_the_same_work_only() -> None:
    more = replace(WHERE, faults=(Caller("page fault", "slab_take < malloc", 60),))
    assert [(one.before, one.after) for one in where_diff(WHERE, more).kernel] == [(40.0, 60.0)]
    assert where_diff(WHERE, replace(more, watched_operations=7)).kernel == ()


def test_two_workloads_are_not_compared() -> None:
    with pytest.raises(LabError, match="the old result is of 'random mix, 256 slots', not of 'other'"):
        where_diff(WHERE, replace(WHERE, task="other"))


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(WHERE.text())
    assert where_read(path) == WHERE
    whole = json.loads(WHERE.text())
    wrong = [
        whole | {"total": "x"},
        whole | {"total": 0},
        whole | {"total": float("nan")},
        whole | {"operations": 1.5},
        whole | {"task": None},
        whole | {"functions": [{"object": "a", "function": "b", "instructions": "1"}]},
        whole | {"faults": [{"what": "page fault", "who": ["free"], "count": 1}]},
        whole | {"faults": {"what": "page fault"}},
        whole | {"notes": 1},
    ]
    for text in ('{"task": 1}', "[" * 100_000, *map(json.dumps, wrong)):
        path.write_text(text)
        with pytest.raises(LabError, match=r"old\.json is not a result of `hakmem where --json`"):
            where_read(path)
    with pytest.raises(LabError, match="cannot be read"):
        where_read(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("old", "commit", "arm", "expected"),
    [
        ("hakmem@HEAD", "abc", "hakmem", "hakmem@HEAD"),
        ("old.json", "abc123", "hakmem", "hakmem@abc123"),
        ("old.json", "abc123 with changes", "hakmem", ""),
        ("old.json", "", "jemalloc", "jemalloc"),
        ("old.json", "", "libother.so", ""),
    ],
)
def test_the_old_arm_of_a_kept_result_is_its_commit(old: str, commit: str, arm: str, expected: str) -> None:
    assert old_arm(replace(WHERE, commit=commit, arm=arm), old) == expected


def test_the_tables_show_it() -> None:
    text = "\n".join(grid.markdown() for grid in grids_of(WHERE))
    for part in ("| allocator | free | 21.00 | 21.0 % |", "src/heap/front.h:96", "os_purge < free", "25.0 %"):
        assert part in text
    assert "if (a \\| b) return;" in spots_grid(WHERE).markdown()
    assert any("Note: perf is not installed" in line for line in where_lines(WHERE))


# ---- live ---------------------------------------------------------------------------------------------------


@pytest.fixture
def library(build: Path) -> Path:
    if not (build / "libhakmem.so").is_file():
        pytest.skip("libhakmem.so is not built: ./hakmem build")
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    return build / "libhakmem.so"


def test_a_cell_from_beginning_to_end(build: Path, library: Path, tmp_path: Path) -> None:
    kept = tmp_path / "where.json"
    bench = ["--bench", "LIFO burst, 64 of 64 B", "--build", str(build)]
    page = tmp_path / "where.md"
    done = lab("where", *bench, "--arm", str(library), "--json", str(kept), "--report", str(page))
    assert done.returncode == 0, done.stderr
    found = where_read(kept)
    costs = {
        one.function.removeprefix("hak_"): one.instructions
        for one in found.functions
        if one.object == ALLOCATOR
    }
    # Of a block that is at hand: what the reviewed text of the fast paths has.
    assert 30 < costs["malloc"] + costs["free"] < 45
    assert found.total > found.allocator > 30
    assert found.spots[0].instructions == pytest.approx(1.0, rel=0.05)
    if shutil.which("objdump"):
        assert all(spot.code for spot in found.spots)
    assert done.stdout.splitlines()[-1].startswith("confirm: ./hakmem ab hakmem@HEAD hakmem --bench ")
    text = page.read_text()
    assert text.startswith("# Where the work goes: LIFO burst, 64 of 64 B\n")
    assert "## Instructions by function" in text and str(tmp_path) not in text
    again = lab("where", *bench, "--arm", str(library), "--diff", str(kept), "--only-instructions")
    assert again.returncode == 0, again.stderr
    assert "No function of the allocator takes other instructions than before." in again.stdout


def test_a_command_of_ones_own(build: Path, library: Path, tmp_path: Path) -> None:
    kept = tmp_path / "where.json"
    options = ["--build", str(build), "--arm", str(library), "--json", str(kept)]
    done = lab("where", *options, "--", str(build / "bench/random_mixed"), "20000", "100", "1")
    assert done.returncode == 0, done.stderr
    content = json.loads(kept.read_text())
    assert (content["task"], content["unit"]) == ("random_mixed", "run")
    assert any(one["object"] == ALLOCATOR and one["instructions"] > 10_000 for one in content["functions"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--confirm"], "--confirm compares two: say with --diff OLD"),
        (["--bench", "lua"], "lua is a program file"),
        (["--bench", "start of"], "start of `true` starts other processes"),
        (["--bench", "64 of 64", "--", "true"], "give either --bench or a command"),
        (["--", "nosuch"], "nosuch: there is no such command"),
        (["--diff", "/nowhere/old.json", "--bench", "64 of 64"], "/nowhere/old.json cannot be read"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    build: Path, library: Path, arguments: list[str], message: str
) -> None:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    own = ["--build", str(build), "--arm", str(library), "--only-instructions"]
    with pytest.raises(LabError) as caught:
        app(["where", *arguments[:at], *own, *arguments[at:]], standalone_mode=False)
    assert str(caught.value).startswith(message)


def test_a_result_of_another_workload_is_refused_before_anything_is_measured(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> Where:
        raise AssertionError("measured")

    monkeypatch.setattr("hakmem_lab.commands.where.where_measure", refuse)
    old = tmp_path / "old.json"
    old.write_text(WHERE.text())
    arguments = ["--build", str(build), "--diff", str(old), "--bench", "64 of 64"]
    with pytest.raises(LabError, match="the old result is of 'random mix, 256 slots', not of "):
        app(["where", *arguments], standalone_mode=False)


def test_what_cannot_be_kept_is_shown_all_the_same(
    build: Path,
    library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("hakmem_lab.commands.where.where_measure", lambda *_: WHERE)
    monkeypatch.setenv(RESULTS_VARIABLE, str(tmp_path))
    (tmp_path / "where").touch()
    arguments = ["--build", str(build), "--arm", str(library), "--bench", WHERE.task]
    with pytest.raises(LabError, match=r"where is no folder"):
        app(["where", *arguments], standalone_mode=False)
    told = capsys.readouterr().out
    assert "slab_take < malloc" in told and "result: " not in told
    assert told.splitlines()[-1].startswith("confirm: ")
