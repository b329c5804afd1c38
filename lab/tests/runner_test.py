from __future__ import annotations

import errno
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.errors import LabError
from hakmem_lab.measure import runner
from hakmem_lab.measure.rounds import Failure, run_once
from hakmem_lab.measure.runner import (
    PRELOAD_PLACE,
    Arm,
    Conditions,
    Measured,
    command_make,
    environment_make,
    process_run,
    service_check,
)
from hakmem_lab.measure.turns import Seat

LIBRARY = Path("/opt/x/liballocator.so")
PRELOADED = Peer("other", "1", LIBRARY, "id", (("OTHER_OPTION", "value"),))
GLIBC = Peer("glibc", "2.36", None, "id")
CPUS = tuple(os.sched_getaffinity(0))
LINE: dict[str, object] = {
    "ops": 1,
    "seconds": 1.0,
    "cpu_seconds": 1.0,
    "minor_faults": 7,
    "major_faults": 0,
    "involuntary_switches": 0,
}


def bytes_of(environment: dict[str, str]) -> int:
    return sum(len(key) + len(value) + 10 for key, value in environment.items())


def test_environments_of_a_pair_have_one_size() -> None:
    sizes = {
        bytes_of(environment_make(arm, 1234, preload=True))
        for arm in (Arm(GLIBC), Arm(PRELOADED), Arm(PRELOADED, 6.0))
    }
    assert len(sizes) == 1
    longer = bytes_of(environment_make(Arm(GLIBC), 1235, preload=True))
    assert longer == sizes.pop() + 1


def test_nothing_of_the_users_environment_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("HAKMEM_STATS", "1")
    environment = environment_make(Arm(GLIBC), 0, preload=True)
    assert "LD_PRELOAD" not in environment
    assert "HAKMEM_STATS" not in environment


def test_a_tool_is_not_preloaded_itself() -> None:
    environment = environment_make(Arm(PRELOADED), 0, preload=False)
    assert "LD_PRELOAD" not in environment
    command = command_make(Path("tool"), ["5", PRELOAD_PLACE, "--", "true"], PRELOADED)
    assert command == ["tool", "5", "--preload", str(LIBRARY), "--", "true"]
    assert command_make(Path("tool"), ["5", PRELOAD_PLACE, "--", "true"], GLIBC)[2] == "--"


@pytest.mark.parametrize(
    ("peer", "owner", "served"),
    [
        (PRELOADED, str(LIBRARY), True),
        (PRELOADED, "/lib/libc.so.6", False),
        (PRELOADED, None, False),
        (GLIBC, "/lib/x86_64-linux-gnu/libc.so.6", True),
        (GLIBC, str(LIBRARY), False),
    ],
)
@pytest.mark.parametrize("function", ["malloc", "free"])
def test_service_is_proved(peer: Peer, owner: str | None, served: bool, function: str) -> None:
    if served:
        service_check({f"{function}_from": owner}, peer)
    else:
        with pytest.raises(LabError, match=f"{function} came from"):
            service_check({f"{function}_from": owner}, peer)


def test_a_library_that_was_not_mapped_is_an_error() -> None:
    with pytest.raises(LabError, match="did not serve"):
        service_check({"served": False}, PRELOADED)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo broken >&2; exit 3", "sh exited with 3: broken"),
        ("exit 4", "sh exited with 4"),
        ("kill -SEGV $$", f"sh was ended by signal {signal.SIGSEGV.value} "),
    ],
)
def test_a_failing_process_is_one_clear_line(script: str, message: str) -> None:
    with pytest.raises(LabError) as caught:
        process_run(["/bin/sh", "-c", script], {}, CPUS)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_missing_program_is_one_clear_line() -> None:
    with pytest.raises(LabError, match="nowhere cannot be started: No such file"):
        process_run(["/nowhere"], {}, CPUS)


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RUN_SECONDS_MAX", 0.2)
    with pytest.raises(LabError, match="did not end within"):
        process_run(["/bin/sleep", "60"], {}, CPUS)


def test_a_program_may_print_anything() -> None:
    assert process_run(["/usr/bin/printf", "\\377\\n"], {}, CPUS) == "\N{REPLACEMENT CHARACTER}\n"


def test_output_that_is_no_json_is_an_error() -> None:
    with pytest.raises(LabError, match="echo under glibc printed no JSON"):
        runner.json_run(Path("/bin/echo"), ["{"], Arm(GLIBC), Conditions(1, 0, CPUS))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (LINE, ""),
        ([LINE], "JSON that is no object"),
        ({}, "no 'ops'"),
        ({name: value for name, value in LINE.items() if name != "seconds"}, "no 'seconds'"),
        (LINE | {"minor_faults": None}, "a 'minor_faults' that is no number"),
        (LINE | {"latency_ns": {"p50": 1}}, "no 'p99'"),
    ],
)
def test_a_line_that_lacks_something_is_a_failed_run(line: object, said: str) -> None:
    class Printing:
        def run(self, arm: Arm, conditions: Conditions, _seat: Seat | None = None) -> Measured:
            return runner.workload_run(Path("/bin/echo"), [json.dumps(line)], arm, conditions)

    run = run_once(Printing(), Arm(GLIBC), Conditions(1, 0, CPUS))  # type: ignore[arg-type]  # only run is called
    assert isinstance(run, Measured) == (not said)
    if said:
        assert run == Failure(f"failed: echo under glibc printed {said}")


@pytest.mark.parametrize(
    ("peer", "outcome"),
    [
        (PRELOADED, "failed: other did not serve the process: malloc came from /lib/libc.so.6"),
        (
            replace(GLIBC, programs=Path("/nowhere")),
            "failed: echo is not linked as glibc: preload hakmem there",
        ),
    ],
)
def test_a_run_that_an_allocator_does_not_serve_is_its_result(peer: Peer, outcome: str) -> None:
    class Unserved:
        def run(self, arm: Arm, conditions: Conditions, _seat: Seat | None = None) -> Measured:
            line = json.dumps(LINE | {"malloc_from": "/lib/libc.so.6"})
            return runner.workload_run(Path("/bin/echo"), [line], arm, conditions)

    run = run_once(Unserved(), Arm(peer), Conditions(1, 0, CPUS))  # type: ignore[arg-type]  # only run is called
    assert isinstance(run, Failure) and run.outcome.startswith(outcome)


def test_a_process_that_cannot_be_started_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    class Starting:
        def run(self, arm: Arm, conditions: Conditions, _seat: Seat | None = None) -> Measured:
            return runner.workload_run(Path("/bin/echo"), [], arm, conditions)

    monkeypatch.setattr(runner, "program_run", exhausted)
    with pytest.raises(LabError, match=r"^echo cannot be started: Resource temporarily unavailable"):
        run_once(Starting(), Arm(GLIBC), Conditions(1, 0, CPUS))  # type: ignore[arg-type]  # only run is called


def test_a_child_is_pinned_and_the_laboratory_is_not() -> None:
    code = "import os; print(len(os.sched_getaffinity(0)))"
    output = process_run(["/usr/bin/env", "python3", "-c", code], dict(os.environ), CPUS[:1])
    assert output.strip() == "1"
    assert tuple(os.sched_getaffinity(0)) == CPUS


@pytest.mark.parametrize(("before", "faults"), [({"minor_faults_before": 150}, 157), ({}, 7)])
def test_faults_are_those_of_the_whole_process(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, int], faults: int
) -> None:
    """Those before its work, too; a program that only starts others counts no work of its own."""
    monkeypatch.setattr(runner, "json_run", lambda *_, **__: runner.Line(LINE | before))
    assert runner.workload_run(Path("any"), [], Arm(GLIBC), Conditions(1, 0, CPUS)).minor_faults == faults
