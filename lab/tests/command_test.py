from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.errors import LabError, ProcessFailedError
from hakmem_lab.measure.command import CommandTask
from hakmem_lab.measure.launch import Start, started
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.service import preload_obstacle, service_judge
from hakmem_lab.measure.tree import Image, Watched, descendants_of
from lab_processes import all_end
from toolbox import compile_c

CPUS = tuple(sorted(os.sched_getaffinity(0)))
CONDITIONS = Conditions(1, 0, CPUS)
OWN = Arm(Peer("as it is", "0", None, "id"))
CRASHES = "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }\n"
WORKS = "int main(void) { for (volatile long i = 0; i < 200000000; i++); return 0; }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir()
    return tmp_path


@pytest.fixture
def tool(build: Path) -> Path:
    return build / "bench/command_cost"


@pytest.fixture
def hakmem(build: Path) -> Arm:
    return Arm(Peer("hakmem", "0", build / "libhakmem.so", "id"))


def task_make(
    tool: Path, folder: Path, *command: str, users: Mapping[str, str] | None = None, status: int = 0
) -> CommandTask:
    return CommandTask(
        Start(
            tool,
            command,
            folder / "kept",
            users=dict(os.environ) if users is None else users,
            cwd=folder,
            allow_status=status,
        ),
        threads=len(CPUS),
    )


def shell(tool: Path, folder: Path, script: str, arm: Arm = OWN) -> Measured:
    return task_make(tool, folder, "sh", "-c", script).run(arm, CONDITIONS)


# ---- what it costs -----------------------------------------------------------------------------------------


def test_the_peak_is_the_largest_processs_and_not_the_laboratorys(tool: Path, folder: Path) -> None:
    ballast = bytearray(64 << 20)
    small = shell(tool, folder, "exit 0")
    large = shell(tool, folder, "python3 -c 'bytearray(40 << 20)'; exit 0")
    assert small.peak_rss_kib is not None
    assert large.peak_rss_kib is not None
    assert small.peak_rss_kib < 8 << 10 < 40 << 10 < large.peak_rss_kib < len(ballast) >> 10


def test_the_processor_time_of_all_processes_counts(tool: Path, folder: Path) -> None:
    # The second process outlives its parent: it counts because the tool takes it over.
    busy = "python3 -c 'import time\nwhile time.process_time() < 0.3: pass'"
    run = shell(tool, folder, f"({busy} & wait) & {busy}; wait")
    assert run.cpu_seconds > 0.6
    assert run.minor_faults > 1000


def test_a_slowdown_lets_the_clock_run_on(tool: Path, folder: Path) -> None:
    arm = Arm(OWN.peer, slowdown_percent=50)
    script = "sleep 0.2; echo ${WORKLOAD_SLOWDOWN:-none} >said"
    run = shell(tool, folder, script, arm)
    assert 0.3 < run.seconds < 10  # 50 times as slow would be 10.2
    assert (folder / "said").read_text() == "0.000\n"  # the command itself is not slowed a second time


def test_repeated_runs_are_one(tool: Path, folder: Path) -> None:
    task = task_make(tool, folder, "sh", "-c", "echo x >>count; sleep 0.05").repeated(3)
    run = task.run(OWN, CONDITIONS)
    assert (folder / "count").read_text() == "x\n" * 3
    assert run.ops == 3
    assert run.seconds > 0.15


def test_every_one_of_repeated_runs_reads_the_whole_input(tool: Path, folder: Path) -> None:
    given = folder / "given"
    given.write_text("input\n")
    task = task_make(tool, folder, "sh", "-c", "cat >>said")
    whole = replace(task, start=replace(task.start, stdin=given)).repeated(3)
    whole.run(OWN, CONDITIONS)
    assert (folder / "said").read_text() == "input\n" * 3


def test_input_output_and_environment_are_the_users(tool: Path, folder: Path, hakmem: Arm) -> None:
    script = "[ -f /dev/stdout ] && [ ! -s /dev/stdin ] && echo $MINE $LD_PRELOAD $OPTION >said"
    users = {"PATH": os.environ["PATH"], "MINE": "kept", "LD_PRELOAD": "libc.so.6"}
    arm = Arm(Peer("hakmem", "0", hakmem.peer.library, "id", (("OPTION", "given"),)))
    task_make(tool, folder, "sh", "-c", script, users=users).run(arm, CONDITIONS)
    assert (folder / "said").read_text() == f"kept {hakmem.peer.library}:libc.so.6 given\n"


@pytest.mark.parametrize("before", [{}, {"LD_PRELOAD": ""}, {"LD_PRELOAD": "libc.so.6"}])
def test_the_environment_is_of_one_size_whatever_is_preloaded(
    tool: Path, folder: Path, hakmem: Arm, before: dict[str, str]
) -> None:
    """Also beside a user's own preload: where the stack begins may change the speed."""
    assert hakmem.peer.library is not None
    copy = folder / "a-longer-name" / "lib.so"
    copy.parent.mkdir()
    copy.write_bytes(hakmem.peer.library.read_bytes())
    script = (
        "import os; print(sum(len(n) + len(v) + 10 for n, v in os.environb.items()), file=open('said', 'w'))"
    )
    sizes = set[str]()
    for library in (None, hakmem.peer.library, copy):
        task = task_make(tool, folder, sys.executable, "-I", "-S", "-c", script, users=before)
        task.run(Arm(Peer("some", "0", library, "id")), CONDITIONS)
        sizes.add((folder / "said").read_text())
    assert len(sizes) == 1


def test_one_processor_is_enough(tool: Path, folder: Path) -> None:
    task = task_make(tool, folder, "sh", "-c", "nproc >said")
    task.run(OWN, Conditions(1, 0, CPUS[:1]))
    assert (folder / "said").read_text() == "1\n"


# ---- what goes wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("echo why >&2; exit 3", "failed: status 3: why"),
        ("kill -SEGV $$", f"crashed: signal {signal.SIGSEGV.value}"),
    ],
)
def test_a_failure_has_its_reason(tool: Path, folder: Path, script: str, outcome: str) -> None:
    with pytest.raises(ProcessFailedError) as caught:
        shell(tool, folder, script)
    assert caught.value.outcome == outcome
    assert str(caught.value).startswith("sh under as it is ")


def test_an_exit_status_can_be_allowed(tool: Path, folder: Path) -> None:
    task = task_make(tool, folder, "sh", "-c", "exit 3", status=3)
    assert task.run(OWN, CONDITIONS).ops == 1
    counted = task_make(tool, folder, "sh", "-c", "echo x >>count; exit 3", status=3).repeated(2)
    assert counted.run(OWN, CONDITIONS).ops == 2
    assert (folder / "count").read_text() == "x\n" * 2
    with pytest.raises(ProcessFailedError, match="exited with 0"):
        task_make(tool, folder, "true", status=3).run(OWN, CONDITIONS)


def test_a_command_that_is_not_there(tool: Path, folder: Path) -> None:
    with pytest.raises(LabError, match="cannot run /nosuch: No such file or directory"):
        task_make(tool, folder, "/nosuch").run(OWN, CONDITIONS)


def test_a_library_that_is_not_there_is_no_silent_glibc(tool: Path, folder: Path) -> None:
    with pytest.raises(LabError, match=r"cannot read /nosuch\.so"):
        shell(tool, folder, "exit 0", Arm(Peer("gone", "0", Path("/nosuch.so"), "id")))


def test_a_library_that_crashes_is_told_from_the_command(tool: Path, folder: Path) -> None:
    library = compile_c(folder / "crash.so", CRASHES, "-shared", "-fPIC")
    with pytest.raises(ProcessFailedError) as caught:
        shell(tool, folder, "exit 0", Arm(Peer("crash", "0", library, "id")))
    assert caught.value.outcome == f"crashed: signal {signal.SIGABRT.value}"


def test_what_a_command_sends_to_its_group_stays_there(tool: Path, folder: Path) -> None:
    assert shell(tool, folder, "trap 'kill 0' EXIT; trap '' TERM; exit 0").ops == 1
    with pytest.raises(ProcessFailedError) as caught:
        shell(tool, folder, "kill -KILL 0")
    assert caught.value.outcome == f"crashed: signal {signal.SIGKILL.value}"


@pytest.mark.parametrize("name", ["./script", "script"])
def test_a_script_without_an_interpreter_is_the_shells(tool: Path, folder: Path, name: str) -> None:
    script = folder / "script"
    script.write_text('echo "$0 $*" >said\n')
    script.chmod(0o755)
    users = {"PATH": f"/nowhere:{folder}:{os.environ['PATH']}"}
    task_make(tool, folder, name, "a", "b", users=users).run(OWN, CONDITIONS)
    path = script if name == "script" else name
    assert (folder / "said").read_text() == f"{path} a b\n"


def test_nothing_stays_behind(tool: Path, folder: Path) -> None:
    start = task_make(tool, folder, "sh", "-c", "setsid sleep 60 & sleep 60").start
    with started(start, OWN, CONDITIONS) as running:
        deadline = time.monotonic() + 10
        while len(below := descendants_of(running.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(below) >= 3
        with pytest.raises(ProcessFailedError, match="did not end within"):
            running.wait(0.01)
    assert all_end(below)


def test_what_a_command_leaves_running_is_ended(tool: Path, folder: Path) -> None:
    """Also in a session of its own, and what comes from one that is ended."""
    left = "sleep 60 & echo $! >>left; exec sleep 60"
    script = f"setsid sh -c '{left}' & echo $! >>left; while [ $(wc -l <left) -lt 2 ]; do :; done; exit 0"
    shell(tool, folder, script)
    pids = [int(word) for word in (folder / "left").read_text().split()]
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


MEASURER = """
import os, signal, sys
from pathlib import Path
from command_test import CONDITIONS, OWN, task_make
from hakmem_lab.measure.launch import started

folder = Path(sys.argv[2])
server = "sh -c 'echo $$ >below.new; mv below.new below; exec sleep 60' & exec sleep 60"
with started(task_make(Path(sys.argv[1]), folder, "sh", "-c", server).start, OWN, CONDITIONS) as running:
    while not (folder / "below").exists():
        pass
    print(running.pid, (folder / "below").read_text(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_server_ends_with_who_measures_it(tool: Path, folder: Path) -> None:
    """Also when that is killed, and can do nothing about it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, "-c", MEASURER, str(tool), str(folder)]
    done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert all_end(map(int, done.stdout.split()))


# ---- the proof of service ----------------------------------------------------------------------------------


def test_a_command_is_seen_to_be_served(tool: Path, folder: Path, hakmem: Arm) -> None:
    task = task_make(tool, folder, "python3", "-c", "list(map(str, range(200000)))")
    measured, service = task.observe(hakmem, CONDITIONS)
    assert (service.complaint, service.owner) == ("", "libhakmem.so")
    assert measured.rss_mean_kib is not None
    assert measured.peak_rss_kib is not None
    assert 1000 < measured.rss_mean_kib <= (measured.tree_peak_rss_kib or 0)
    _, own = task.observe(OWN, CONDITIONS)
    assert own.is_libc


def test_a_static_child_of_a_wrapper_is_seen(tool: Path, folder: Path, hakmem: Arm) -> None:
    compile_c(folder / "still", WORKS, "-static")
    _, service = task_make(tool, folder, "sh", "-c", "./still; exit 0").observe(hakmem, CONDITIONS)
    assert service.complaint.startswith("still (")
    assert service.complaint.endswith("a static binary: nothing can be preloaded into it")


@pytest.mark.parametrize(
    ("mode", "user", "group", "attributes", "privileged"),
    [
        (0o755, 1000, 1000, [], False),
        (0o4755, 1000, 1000, [], True),
        (0o4755, 0, 0, [], False),  # root's own program gives root nothing
        (0o2755, 0, 1000, [], True),
        (0o2755, 1000, 0, [], False),
        (0o2745, 0, 1000, [], False),  # setgid without execution: a lock
        (0o755, 1000, 1000, ["security.capability"], True),
        (0o755, 0, 0, ["security.capability"], False),
    ],
)
def test_a_program_of_root_is_privileged_if_it_gets_rights_that_we_have_not(
    monkeypatch: pytest.MonkeyPatch,
    mode: int,
    user: int,
    group: int,
    attributes: list[str],
    privileged: bool,
) -> None:
    file = os.stat_result((stat.S_IFREG | mode, 0, 0, 1, 0, 0, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda _path: file)
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setattr(os, "getgid", lambda: group)
    monkeypatch.setattr(os, "listxattr", lambda _path: attributes)
    assert preload_obstacle(Path("/nowhere/program")).startswith("privileged") == privileged


def test_a_static_program_is_seen_where_files_have_no_attributes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> list[str]:
        raise OSError(errno.ENOTSUP, "not supported", str(path))

    monkeypatch.setattr(os, "listxattr", refuse)
    program = compile_c(folder / "still", WORKS, "-static")
    assert preload_obstacle(program).startswith("a static binary")


LIBRARY = Path("/peers/libpeer.so")
TOOL = Path("/bench/command_cost")
BOUND = "binding file /bin/5 [0] to /peers/libpeer.so [0]: normal symbol `malloc' [X]\n" + (
    "binding file /bin/5 [0] to /peers/libpeer.so [0]: normal symbol `free' [X]\n"
)
OTHER = BOUND.replace("/peers/libpeer.so", "/lib/other.so")


def image(pid: int, ticks: int, parent: int = 1, mapped: bool = True, looks: int = 2) -> Image:
    return Image(pid, parent, Path(f"/bin/{pid}"), f"program-{pid}", looks, 0, ticks, 100, mapped)


@pytest.mark.parametrize(
    ("images", "texts", "complaint"),
    [
        ([image(5, 9)], {5: BOUND}, ""),
        ([image(5, 9, mapped=False, looks=1)], {5: BOUND}, ""),  # seen before its libraries were mapped
        (  # by exec the same process became a program without the library
            [image(5, 9, mapped=False, looks=1)],
            {5: BOUND.replace("/bin/5", "env")},
            "program-5 (100 % of the work): the library is not",
        ),
        ([image(5, 9, mapped=False, looks=1)], {5: BOUND.replace("/bin/5", "program-5")}, ""),
        ([image(5, 9), image(6, 90, parent=5)], {5: BOUND}, ""),  # forked, and runs on
        ([image(5, 99), image(6, 1)], {5: BOUND, 6: OTHER}, ""),  # a helper, small beside it
        (
            [image(5, 80), image(6, 20)],
            {5: BOUND, 6: OTHER},
            "program-6 (20 % of the work): malloc of",
        ),
        (
            [image(5, 9)],
            {5: OTHER},
            "program-5 (100 % of the work): malloc of 5 is bound to other.so",
        ),
        (
            [image(5, 9, mapped=False)],
            {5: BOUND},
            "program-5 (100 % of the work): the library is not",
        ),
        ([], {5: BOUND}, ""),  # ended between two looks
        ([], {}, "the dynamic linker bound no malloc to it"),
    ],
)
def test_who_served_what_matters(images: list[Image], texts: dict[int, str], complaint: str) -> None:
    arm = Arm(Peer("peer", "0", LIBRARY, "id"))
    service = service_judge(arm, Watched(tuple(images), 1.0, 1.0), texts, TOOL)
    assert service.complaint.startswith(complaint)
    assert bool(service.complaint) == bool(complaint)


def test_glibc_did_not_serve_a_program_that_brings_an_allocator_along() -> None:
    watched = Watched((image(5, 9),), 1.0, 1.0)
    for name, complaint in (("glibc", "malloc of program-5 is bound to other.so"), ("as it is", "")):
        service = service_judge(Arm(Peer(name, "0", None, "id")), watched, {5: OTHER}, TOOL)
        assert (service.complaint, service.owner) == (complaint, "other.so")
