"""`hakmem where`: two results are held side by side, and a run of its own. What its tools print: kernel_test.py."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.checkout import RESULTS_VARIABLE
from hakmem_lab.cli import app
from hakmem_lab.commands.where import old_arm
from hakmem_lab.errors import LabError
from hakmem_lab.measure.kernel import Caller, Sampled
from hakmem_lab.reports.where import diff_lines, grids_of, prediction_text, spots_grid, where_lines
from hakmem_lab.studies.callgrind import Place, Profile
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
from toolbox import compile_c

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
        whole | {"total": 10**309},
        whole | {"operations": -(10**309)},
        whole | {"faults": [{"what": "page fault", "who": "free", "count": 10**309}]},
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
        (["--diff", "hakmem", "--confirm", "--budget", "soon"], "--budget is a time such as 60s"),
        (["--bench", "lua"], "lua is a program file"),
        (["--bench", "start of"], "start of `true` starts other processes"),
        (["--bench", "64 of 64", "--", "true"], "give either --bench or a command"),
        (["--", "nosuch"], "nosuch: there is no such command"),
        (["--", "sh", "-c", "echo why >&2; exit 3"], "sh exited with 3: why"),
        (["--", "sh", "-c", "kill -TERM $$"], "sh was ended by signal 15 (Terminated)"),
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


def test_a_static_program_is_refused_before_it_is_run(
    build: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also as the interpreter of a script. Without a preload it is looked at as any other."""
    program = compile_c(tmp_path / "static", "int main(void) { return 0; }\n", "-static")
    script = tmp_path / "script"
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)

    def begin(*_arguments: object, **_options: object) -> tuple[Profile, str]:
        raise AssertionError("it began")

    monkeypatch.setattr("hakmem_lab.studies.where.profile_run", begin)
    for command in (program, script):
        line = ["--build", str(build), "--", str(command)]
        with pytest.raises(LabError, match="it is a static binary"):
            app(["where", "--arm", str(library), *line], standalone_mode=False)
        with pytest.raises(AssertionError, match="it began"):
            app(["where", "--arm", "glibc", *line], standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bench", "64 of 64"], "the old result is of 'random mix, 256 slots', not of "),
        (["--bench", WHERE.task, "--confirm"], "the old result is of no commit"),
    ],
)
def test_an_old_result_that_is_of_no_use_is_refused_before_anything_is_measured(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    def refuse(*_arguments: object) -> Where:
        raise AssertionError("measured")

    monkeypatch.setattr("hakmem_lab.commands.where.where_measure", refuse)
    old = tmp_path / "old.json"
    old.write_text(replace(WHERE, commit="").text())
    with pytest.raises(LabError, match=message):
        app(["where", "--build", str(build), "--diff", str(old), *arguments], standalone_mode=False)


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
