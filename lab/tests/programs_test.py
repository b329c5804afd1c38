from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError, ProcessFailedError, RunFailedError
from hakmem_lab.measure.runner import Arm, Conditions
from hakmem_lab.measure.stage import Stage
from hakmem_lab.workloads.cells import FIRST_FIGURES, Cell, Measure
from hakmem_lab.workloads.find import program_find, workload_find
from hakmem_lab.workloads.programs.file import FOLDER, ProgramFile, program_named, program_names, program_read
from hakmem_lab.workloads.programs.task import ProgramTask, program_prepare

CPUS = tuple(sorted(os.sched_getaffinity(0)))
CONDITIONS = Conditions(7, 0, CPUS)
GLIBC = Arm(Peer("glibc", "0", None, "id"))

BATCH = """
tools = ["sh"]
prepare = [["sh", "-c", "echo prepared >made"]]
environment = { SAID = "hello" }
[run]
command = ["sh", "-c", "cat {inputs}/made; echo $SAID {seed} >out"]
operations = 5
check = ["cat", "out"]
"""
SERVER = """
threads = 2
[server]
command = ["sh", "-c", "echo $$ >pid; trap 'exit 0' TERM; touch ready; while :; do sleep 0.02; done"]
ready = ["test", "-e", "ready"]
stop = "TERM"
[load]
command = ["sh", "-c", "sleep 0.1"]
operations = 10
check = ["echo", "{seed}"]
"""


@pytest.fixture
def stage(build: Path, tmp_path: Path) -> Stage:
    (tmp_path / "stage").mkdir()
    return Stage(tmp_path / "stage", Checkout.find(build))


def file_make(folder: Path, text: str) -> ProgramFile:
    path = folder / "mine.toml"
    path.write_text(text)
    return program_read(path)


def prepared(stage: Stage, text: str) -> ProgramTask:
    return program_prepare(stage.checkout, stage, file_make(stage.folder, text), seed=1)


# ---- the files ---------------------------------------------------------------------------------------------


def all_programs() -> Iterator[ProgramFile]:
    return map(program_named, program_names())


def test_the_programs_that_come_along() -> None:
    wanted = {"redis", "sqlite3", "postgresql", "python", "node", "g++", "ghostscript", "z3", "lua", "perl"}
    assert wanted <= set(program_names())
    packages = (Checkout.find().root / "tests/system/tools.txt").read_text()
    for program in all_programs():
        assert program.about
        assert all(f"\n{tool} " in packages for tool in program.tools), program.name
        assert all((FOLDER / name).is_file() for name in program.files), program.name


def test_only_known_places_are_used() -> None:
    for program in all_programs():
        commands = [program.run.command, program.run.check, *program.prepare]
        if program.server:
            commands += [program.server.command, program.server.ready]
        places = set(re.findall(r"\{\w+\}", " ".join(" ".join(command) for command in commands)))
        assert places <= {"{inputs}", "{folder}", "{seed}"}, program.name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("operations", "operation"),
            r"mine.toml, \[run\]: there is no 'operation', did you mean 'operations'\?",
        ),
        (("prepare", "prepared"), "mine.toml: there is no 'prepared', did you mean 'prepare'?"),
        (("operations = 5", 'operations = "5"'), r"\[run\]: 'operations' is not a whole number"),
        (("operations = 5", "operations = 0"), r"\[run\]: 'operations' is at least 1"),
        (("command =", "check_ ="), r"\[run\]: 'command' is missing"),
        (('tools = ["sh"]', "tools = [1]"), "'tools' is not a list of words"),
        (('tools = ["sh"]', 'figure = "speed"'), "'figure' is one of time, processor time"),
        (("[run]", "[server]"), r"\[load\]: 'command' is missing"),
        (('tools = ["sh"]', "tools = "), "mine.toml: Invalid value"),
    ],
)
def test_a_mistake_in_a_file_is_one_clear_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(LabError, match=message) as caught:
        file_make(tmp_path, BATCH.replace(*change))
    assert "\n" not in str(caught.value)


def test_a_signal_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="'stop' is the name of a signal"):
        file_make(tmp_path, SERVER.replace('"TERM"', '"NOW"'))


# ---- running -----------------------------------------------------------------------------------------------


def test_a_program_that_ends_by_itself(stage: Stage) -> None:
    task = prepared(stage, BATCH)
    one, two = task.run(GLIBC, CONDITIONS), task.run(GLIBC, CONDITIONS)
    assert one.ops == 5
    assert one.checksum == two.checksum
    assert one.checksum != task.run(GLIBC, Conditions(8, 0, CPUS)).checksum
    assert [path.name for path in task.scratch.iterdir()] == ["inputs"]  # each run's folder is gone


def test_a_server_is_stopped_and_only_its_load_is_timed(stage: Stage, build: Path) -> None:
    task = prepared(stage, SERVER)
    hakmem = Arm(Peer("hakmem", "0", build / "libhakmem.so", "id"), slowdown_percent=100)
    run, service = task.observe(hakmem, CONDITIONS)
    assert service.complaint == ""
    assert run.ops == 10
    assert run.seconds >= 0.2  # 0.1 s of load, slowed to twice that
    assert run.wall_seconds > run.seconds + 1  # the idle second is not in it
    assert run.idle_rss_kib
    assert run.checksum == task.run(GLIBC, CONDITIONS).checksum


def test_a_server_that_crashes_under_load_is_the_reason(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hakmem_lab.workloads.programs.task.CRASH_SECONDS", 60)
    text = SERVER.replace("sleep 0.1", "kill -SEGV $(cat pid); false")
    with pytest.raises(ProcessFailedError) as caught:
        prepared(stage, text).run(GLIBC, CONDITIONS)
    assert caught.value.outcome == "crashed: signal 11"


def test_a_server_that_hangs_is_not_waited_for(stage: Stage) -> None:
    with pytest.raises(ProcessFailedError, match=r"sh did not end within 0\.2 s") as caught:
        prepared(stage, SERVER.replace("sleep 0.1", "sleep 60")).limited(0.2).run(GLIBC, CONDITIONS)
    assert caught.value.outcome == "failed under its load"


def test_a_check_that_fails_is_the_allocators_result(stage: Stage) -> None:
    text = BATCH.replace('check = ["cat", "out"]', 'check = ["false"]')
    with pytest.raises(ProcessFailedError, match=r"^mine, its check: false exited with 1$") as caught:
        prepared(stage, text).run(GLIBC, CONDITIONS)
    assert caught.value.outcome == "failed: its check"


def test_a_check_that_cannot_be_started_is_no_result(stage: Stage) -> None:
    text = BATCH.replace('check = ["cat", "out"]', 'check = ["/nowhere/check"]')
    with pytest.raises(LabError, match=r"^/nowhere/check cannot be started: ") as caught:
        prepared(stage, text).run(GLIBC, CONDITIONS)
    assert not isinstance(caught.value, RunFailedError)


def test_a_server_that_does_not_answer_is_not_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own question would wait, too."""
    monkeypatch.setattr("hakmem_lab.workloads.programs.task.READY_SECONDS", 0.3)
    text = SERVER.replace('ready = ["test", "-e", "ready"]', 'ready = ["sleep", "60"]')
    started = time.monotonic()
    with pytest.raises(ProcessFailedError) as caught:
        prepared(stage, text).run(GLIBC, CONDITIONS)
    assert caught.value.outcome == "hung: not ready after 0.3 s"
    assert time.monotonic() - started < 30


def test_a_load_that_fails_is_named(stage: Stage) -> None:
    text = SERVER.replace("sleep 0.1", "echo refused >&2; exit 4")
    with pytest.raises(LabError, match="mine under glibc, its load: sh exited with 4: refused"):
        prepared(stage, text).run(GLIBC, CONDITIONS)


def test_a_program_is_the_same_only_with_its_files_and_tools(stage: Stage) -> None:
    tool, given = stage.folder / "bin/sorter", stage.folder / "words"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    given.write_text("one")
    text = f'tools = ["sh", "sorter"]\nfiles = ["words"]\npath = ["{tool.parent}"]\n[run]\ncommand = ["sorter"]\n'

    def identities(comment: str = "") -> dict[str, str]:
        return prepared(stage, text + comment).identities()

    before = identities()
    assert set(before) == {"mine/mine.toml", "mine/words", "mine/sh", "mine/sorter", "bench/command_cost"}
    assert identities() == before
    given.write_text("two")
    tool.write_text("#!/bin/dash\n")
    now = identities("# seen again\n")
    assert {name for name in now if now[name] != before[name]} == {
        "mine/mine.toml",
        "mine/words",
        "mine/sorter",
    }


def test_what_is_not_installed_is_named_with_its_package(stage: Stage) -> None:
    program = replace(program_named("redis"), tools=("redis-server", "no-such-tool"), path=())
    with pytest.raises(LabError, match=r"not installed: .*no-such-tool \(on Debian: apt-get install .*"):
        program_prepare(stage.checkout, stage, program, seed=1)


def test_a_preparation_that_fails_is_named(stage: Stage) -> None:
    with pytest.raises(LabError, match="preparing mine: sh exited with 1: no room"):
        prepared(stage, BATCH.replace("echo prepared >made", "echo no room >&2; exit 1"))


# ---- finding -----------------------------------------------------------------------------------------------


def test_workloads_are_found_by_name(tmp_path: Path) -> None:
    assert program_find("lua").measure is Measure.TIME
    path = tmp_path / "mine.toml"
    path.write_text(BATCH)
    assert program_find(str(path)).name == "mine"
    cell = FIRST_FIGURES[0]
    assert isinstance(workload_find(cell.name, FIRST_FIGURES), Cell)
    assert isinstance(workload_find("redis", FIRST_FIGURES), ProgramFile)
    with pytest.raises(LabError, match="there is no program 'sqlite', did you mean 'sqlite3'"):
        program_find("sqlite")
    with pytest.raises(LabError, match="there is no workload 'hand-ovr"):
        workload_find("hand-ovr of 1000 blocks", FIRST_FIGURES)
    with pytest.raises(LabError, match=r"cannot read nosuch\.toml: No such file"):
        program_find("nosuch.toml")
