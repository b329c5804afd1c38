from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.measure.stage import staged
from hakmem_lab.processes import ending_as_interrupted, pinned_to, program_run
from lab_command import LAB
from lab_processes import all_end, limits_until

CPUS = tuple(os.sched_getaffinity(0))
LEAVES_ONE = "sleep 60 & echo $! >pid.new; mv pid.new pid; "


def started_in(folder: Path) -> int:
    """The process that LEAVES_ONE left."""
    deadline = time.monotonic() + 300
    while not (folder / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return int((folder / "pid").read_text())


@pytest.fixture(autouse=True)
def hangups_are_not_ignored() -> Iterator[None]:
    """They are where the tests themselves were started by nohup, and children inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_what_is_given_printed_and_said() -> None:
    done = program_run(
        ["sh", "-c", "cat; printf '\\377'; echo one >&2; echo two >&2; exit 3"], 20, given="in"
    )
    assert (done.status, done.printed, done.output) == (3, b"in\xff", "in\N{REPLACEMENT CHARACTER}")
    assert (done.errors, done.said) == ("one\ntwo\n", ": two")


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """At once, also though what it started holds its output."""
    for seconds in limits_until(tmp_path / "pid"):
        began = time.monotonic()
        with pytest.raises(subprocess.TimeoutExpired):
            program_run(["sh", "-c", LEAVES_ONE + "wait"], seconds, cwd=tmp_path)
        assert time.monotonic() - began < seconds + 30
    assert all_end([started_in(tmp_path)])


def test_what_leaves_its_session_is_not_waited_for(tmp_path: Path) -> None:
    for seconds in limits_until(tmp_path / "pid"):
        with pytest.raises(subprocess.TimeoutExpired):
            program_run(["sh", "-c", f"setsid sh -c '{LEAVES_ONE} wait' & wait"], seconds, cwd=tmp_path)
    os.kill(started_in(tmp_path), signal.SIGKILL)


def test_pinned_until_the_end_of_the_block() -> None:
    with pinned_to(CPUS[:1]):
        assert os.sched_getaffinity(0) == {CPUS[0]}
    assert tuple(os.sched_getaffinity(0)) == CPUS


# ---- what ends the laboratory ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_interrupts_and_the_next_spares_the_clearing_up(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    cleared = False
    with pytest.raises(KeyboardInterrupt), ending_as_interrupted():
        try:
            os.kill(os.getpid(), number)
            time.sleep(20)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
            cleared = True
    assert cleared
    assert signal.getsignal(number) is before


def test_under_nohup_a_closed_terminal_is_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_as_interrupted():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


SIMULATES = """
import sys
from pathlib import Path
from hakmem_lab import cli
from hakmem_lab.commands import sharing
from hakmem_lab.processes import program_run

script, folder = sys.argv.pop(), Path(sys.argv.pop())

class Simulator:
    def __init__(self, checkout):
        program_run(["sh", "-c", script + "wait"], 60, cwd=folder)

sharing.Simulator = Simulator
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_any_command_that_is_told_to_end_leaves_nothing_running(
    tmp_path: Path, number: signal.Signals
) -> None:
    line = [sys.executable, "-c", SIMULATES, "sharing", str(tmp_path), LEAVES_ONE]
    environment = {**os.environ, "PYTHONPATH": str(LAB), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True) as process:
        simulation = started_in(tmp_path)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "hakmem: interrupted\n")
    assert all_end([simulation])


# ---- the folder of a run -----------------------------------------------------------------------------------


def test_the_folders_of_dead_runs_are_cleared_away_and_no_others(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, tmp_path)
    dead = checkout.tools / "lab" / "run-dead"
    dead.mkdir(parents=True)
    (dead / "copy").touch()
    with staged(checkout) as first:
        assert not dead.exists()
        with staged(checkout) as second:
            assert first.folder.is_dir()
            assert second.folder != first.folder
    assert list((checkout.tools / "lab").iterdir()) == []
