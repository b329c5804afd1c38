"""Processes that take turns: never two at once, each by its own clock, none left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.errors import LabError, ProcessFailedError, RunFailedError
from hakmem_lab.measure import runner, turns
from hakmem_lab.measure.backing import Backing
from hakmem_lab.measure.command import CommandTask
from hakmem_lab.measure.launch import Start
from hakmem_lab.measure.pairs import disturbance
from hakmem_lab.measure.runner import Arm, Conditions, process_run
from hakmem_lab.measure.task import CellTask, runs_side_by_side
from hakmem_lab.measure.tree import stat_fields
from hakmem_lab.measure.turns import VARIABLE, Seat, turn_seconds, turns_take
from hakmem_lab.processes import Finished, program_run
from hakmem_lab.workloads.cells import COUNT_PLACE, SEED_PLACE, Cell
from lab_pairs import GLIBC, RUN

CELL = Cell("cell", "program", (COUNT_PLACE, SEED_PLACE), first_count=1000)
CPUS = tuple(sorted(os.sched_getaffinity(0)))
RUNS_OF_WORK = """
import sys, time
end, last = time.process_time() + float(sys.argv[1]), time.monotonic()
began = last
while time.process_time() < end:
    now = time.monotonic()
    if now - last > 0.004:
        sys.stdout.write(f"{began} {last}\\n")
        began = now
    last = now
sys.stdout.write(f"{began} {last}\\n")
"""
"""Prints when it ran."""
TREE = "import os, sys; os.fork(); exec(sys.argv[2])"


def run_at(seat: Seat, *command: str) -> Finished:
    environment = dict(os.environ) | seat.environment
    return program_run(command, 60, CPUS, env=environment, descriptors=seat.descriptors, started=seat.started)


def python_at(seat: Seat, *arguments: str) -> Finished:
    return run_at(seat, sys.executable, "-S", "-c", *arguments)


def times_of(done: Finished) -> list[tuple[float, float]]:
    assert done.status == 0, done.errors
    pieces = (line.split() for line in done.output.splitlines())
    return [(float(began), float(ended)) for began, ended in pieces]


@pytest.mark.parametrize("lead", [(), (TREE,)], ids=["process", "tree"])
def test_only_one_of_them_runs_at_a_time(lead: tuple[str, ...]) -> None:
    """Of a tree all processes: each prints, and ends, by itself."""
    code = (*lead, "0.15", RUNS_OF_WORK) if lead else (RUNS_OF_WORK, "0.15")
    one, two = (times_of(done) for done in turns_take([lambda seat: python_at(seat, *code)] * 2))
    assert len(one) > 4 and len(two) > 4  # several turns each
    overlap = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in one for b in two)
    ran = sum(ended - began for began, ended in (*one, *two))
    assert overlap < 0.1 * ran


def test_the_clock_stands_still_while_others_run(build: Path) -> None:
    """Three runs that take as long as one take three times as long together, but not by their own clocks."""

    def run(seat: Seat) -> dict[str, float]:
        done = run_at(seat, str(build / "bench" / "no_alloc"), "60000000", "1")
        assert done.status == 0, done.errors
        line: dict[str, float] = json.loads(done.output)
        return line

    began = time.monotonic()
    lines = turns_take([run] * 3)
    wall = time.monotonic() - began
    assert all(line["seconds"] < 0.6 * wall for line in lines)
    assert 0.5 * wall < sum(line["seconds"] for line in lines) < wall


def test_what_runs_by_the_clock_has_all_of_its_time(build: Path) -> None:
    def run(seat: Seat) -> float:
        done = run_at(seat, str(build / "bench" / "larson"), *["1", "8", "128", "64", "100", "1", "1"])
        assert done.status == 0, done.errors
        return float(json.loads(done.output)["seconds"])

    began = time.monotonic()
    assert turns_take([run] * 2) == pytest.approx([1.0, 1.0], abs=0.1)
    assert time.monotonic() - began > 1.8


def test_a_command_is_measured_by_its_own_time(build: Path) -> None:
    code = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"

    def run(seat: Seat) -> float:
        done = run_at(
            seat, str(build / "bench" / "command_cost"), "1", "--", sys.executable, "-S", "-c", code
        )
        assert done.status == 0, done.errors
        line = json.loads(done.output)
        assert line["cpu_seconds"] >= 0.2
        return float(line["seconds"])

    began = time.monotonic()
    seconds = turns_take([run] * 3)
    wall = time.monotonic() - began
    assert 0.5 * wall < sum(seconds) < wall


def test_one_alone_is_never_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seat, "_stop", None)
    (done,) = turns_take([lambda seat: python_at(seat, RUNS_OF_WORK, "0.1")])
    assert done.status == 0


def test_the_results_are_in_order_and_the_first_error_is_raised() -> None:
    def result(seat: Seat, status: int) -> int:
        done = python_at(seat, f"import sys; sys.exit({status})")
        if done.status > 5:
            raise RunFailedError(f"status {done.status}")
        return done.status

    assert turns_take([lambda seat, n=n: result(seat, n) for n in (3, 1, 2)]) == [3, 1, 2]  # type: ignore[misc]
    with pytest.raises(RunFailedError, match="status 7"):
        turns_take([lambda seat, n=n: result(seat, n) for n in (1, 7, 9)])  # type: ignore[misc]


def test_what_was_stopped_with_one_that_ended_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processes hold its output open, and nobody else would wake them."""
    monkeypatch.setattr(turns, "_state_of", lambda _pid: "Z")
    began = time.monotonic()
    runs = [lambda seat: python_at(seat, RUNS_OF_WORK, "0.1")] * 2
    assert [done.status for done in turns_take(runs)] == [0, 0]
    assert time.monotonic() - began < 30


def test_one_that_starts_no_process_holds_nobody_up() -> None:
    assert turns_take([lambda _: 1, lambda seat: python_at(seat, "").status]) == [1, 0]


def test_an_interruption_kills_all_of_them() -> None:
    pids: list[int] = []

    def run(seat: Seat) -> None:
        process = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"], start_new_session=True)
        pids.append(process.pid)
        seat.started(process.pid)
        if len(pids) == 3:
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        process.wait()

    with pytest.raises(KeyboardInterrupt):
        turns_take([run] * 3)
    assert len(pids) == 3
    for pid in pids:
        with pytest.raises((FileNotFoundError, ProcessLookupError)):
            stat_fields(pid)


@pytest.mark.parametrize("others", [0, 2], ids=["last", "among others"])
def test_one_that_hangs_has_its_own_time_and_no_more(monkeypatch: pytest.MonkeyPatch, others: int) -> None:
    """However many take turns with it."""
    monkeypatch.setattr(runner, "RUN_SECONDS_MAX", 0.3)

    def hang(seat: Seat) -> str:
        try:
            return process_run(["sleep", "60"], {"PATH": os.defpath}, CPUS, seat=seat)
        except ProcessFailedError as error:
            return error.outcome

    began = time.monotonic()
    outcomes = turns_take([hang, *[lambda seat: python_at(seat, RUNS_OF_WORK, "0.5").output] * others])
    assert outcomes[0] == "hung: 0.3 s"
    assert time.monotonic() - began < 20


def test_a_command_that_hangs_does_so_too(build: Path, tmp_path: Path) -> None:
    start = Start(build / "bench" / "command_cost", ("sleep", "60"), tmp_path)
    task = CommandTask(start, threads=1, run_seconds_max=0.3, takes_turns=True)
    task.backing.learn(1024)

    def hang(arm: Arm, seat: Seat | None) -> str:
        assert seat is not None
        with pytest.raises(ProcessFailedError) as told:
            task.run(arm, Conditions(1, 0, CPUS), seat)
        return told.value.outcome

    assert runs_side_by_side(task, [GLIBC, GLIBC], hang) == ["hung: 0.3 s"] * 2


FORKS = """
import subprocess, sys
for number in range(int(sys.argv[1])):
    subprocess.run(["true"], check=True)
"""


def test_a_tree_that_forks_all_the_time_takes_its_turns() -> None:
    began = time.monotonic()
    runs = [lambda seat: python_at(seat, FORKS, "100")] * 2
    assert [done.status for done in turns_take(runs)] == [0, 0]
    assert time.monotonic() - began < turns.STOP_SECONDS


@pytest.mark.parametrize("tool", ["command_cost", "start_loop"])
def test_no_stopped_tool_outlives_a_laboratory_that_is_killed(build: Path, tool: str) -> None:
    words = {"command_cost": "'1', '--'", "start_loop": "'1000000', '--'"}[tool]
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.argv[1], {words}, 'sleep', '3'], start_new_session=True)\n"
        "time.sleep(0.2)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    laboratory = subprocess.Popen(
        [sys.executable, "-S", "-c", code, str(build / "bench" / tool)], stdout=subprocess.PIPE
    )
    assert laboratory.stdout is not None
    pid = int(laboratory.stdout.readline())
    os.kill(pid, signal.SIGSTOP)
    laboratory.kill()
    laboratory.communicate()
    late = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and stat_fields(pid)[0] != "Z":
        assert time.monotonic() < late
        time.sleep(0.01)


def test_a_kernel_that_gives_no_clock_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_name: str) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(LabError, match=r"^processes cannot take turns: Too many open files$"):
        turns_take([lambda _: None])


def test_a_clock_that_is_none_is_refused(build: Path, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"1234567")
    with (tmp_path / "short").open("rb") as short:
        for text in ("77", "none", "", f"{short.fileno()}"):
            done = program_run(
                [str(build / "bench" / "no_alloc"), "1", "1"],
                10,
                env={VARIABLE: text},
                descriptors=[short.fileno()],
            )
            assert done.status == 1
            assert done.said == f": no_alloc: {VARIABLE} is a descriptor of a file of 8 bytes, not '{text}'"


class FakeStage:
    def program(self, name: str) -> Path:
        return Path(name)


@pytest.mark.parametrize(("room", "in_turns"), [(True, True), (False, False)])
def test_they_take_turns_where_all_have_room(
    monkeypatch: pytest.MonkeyPatch, room: bool, in_turns: bool
) -> None:
    monkeypatch.setattr(Backing, "has_room", lambda _self, runs: room and runs == 3)
    task = CellTask(FakeStage(), CELL, 1)  # type: ignore[arg-type]  # the fake has all that is asked of a stage
    arms = [replace(GLIBC, peer=replace(GLIBC.peer, name=str(number))) for number in range(3)]
    seats = runs_side_by_side(task, arms, lambda arm, seat: (arm.name, seat is not None))
    assert seats == [(str(number), in_turns) for number in range(3)]


def test_all_of_them_need_room(monkeypatch: pytest.MonkeyPatch) -> None:
    backing = Backing()
    monkeypatch.setattr("hakmem_lab.measure.backing._bytes_free", lambda: 64 << 20)
    assert not backing.has_room(2)  # nobody knows what a run holds
    backing.learn(1024)
    assert backing.has_room(3) and not backing.has_room(4)


def test_of_runs_in_turns_only_what_met_one_of_them_is_marked() -> None:
    task = CellTask(FakeStage(), CELL, 1)  # type: ignore[arg-type]  # the fake has all that is asked of a stage
    run = replace(RUN, in_turns=True, involuntary_switches=10**6, steal_ticks=10**6)
    assert disturbance(task, run, CPUS[:1]) == ""
    assert disturbance(task, replace(run, in_turns=False), CPUS[:1]) != ""
    assert disturbance(task, replace(run, major_faults=1), CPUS[:1]) == "major fault"


@pytest.mark.parametrize(
    ("held_kib", "seconds"),
    [(None, 0.01), (0, 0.01), (1024, 0.01), (2048, 0.01), (4096, 0.02), (10240, 0.05), (1 << 20, 0.05)],
)
def test_who_holds_more_has_longer_turns(held_kib: int | None, seconds: float) -> None:
    assert turn_seconds(held_kib) == pytest.approx(seconds)
