"""The ceiling: its shares from made-up runs, what counts for it, and one tiny run of its own."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.allocators.peers import Peer, PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.ceiling import ceiling_show
from hakmem_lab.errors import LabError, ProcessFailedError
from hakmem_lab.files import finite
from hakmem_lab.measure.prepare import PLAN_VARIABLE, arm_prepared, plan_of
from hakmem_lab.measure.rounds import Failure, work_compare
from hakmem_lab.measure.runner import Arm, Conditions, json_run
from hakmem_lab.measure.stage import Stage, staged
from hakmem_lab.measure.store import Sample
from hakmem_lab.measure.task import CellTask
from hakmem_lab.reports.ceiling import (
    answer_lines,
    ceiling_picture,
    interval_text,
    page_make,
    refused_grid,
    shares_grid,
)
from hakmem_lab.studies.bench import Kept
from hakmem_lab.studies.ceiling import (
    CEILING,
    NULL,
    Ceiling,
    Interval,
    Share,
    State,
    ceiling_candidates,
    ceiling_judge,
)
from hakmem_lab.studies.judging import judge
from hakmem_lab.studies.matrix import SAME, MatrixPlan, Row
from hakmem_lab.workloads.cells import CELLS, Cell
from lab_command import lab
from lab_matrix import plan_make, row_make, samples_make
from lab_pairs import RUN

LAB = Path(__file__).resolve().parents[1]
ARMS = (CEILING, NULL)
BY_NAME = {cell.name: cell for cell in CELLS}


# ---- from kept samples --------------------------------------------------------------------------------------


def plan_of_rows(*rows: Row) -> MatrixPlan:
    return replace(plan_make(*rows, peers=ARMS), missing={"growth": "not served: asks for 99 bytes"})


def samples_of(row: Row, ceiling: float, null: float, **more: float) -> list[Sample]:
    """hakmem takes 1, the others so much of it."""
    return samples_make(row, ceiling=ceiling, null=null, **more)


def judged(**times: tuple[float, float]) -> Ceiling:
    rows = [row_make(name, peers=ARMS) for name in times]
    samples = [one for row in rows for one in samples_of(row, *times[row.name])]
    return ceiling_judge(judge(plan_of_rows(*rows), samples))


def the_share(ceiling: float, null: float) -> Share:
    (share,) = judged(cell=(ceiling, null)).shares
    return share


def test_the_share_is_the_speed_over_the_ceilings() -> None:
    share = the_share(0.8, 0.5)
    assert share.share.ratio == pytest.approx(0.8, rel=0.01)
    assert share.state is State.BELOW
    assert share.times.ceiling == pytest.approx(0.8 * share.times.hakmem, rel=0.01)


def test_the_time_beyond_null_is_divided_between_checks_and_structure() -> None:
    """Of the half that is not the workload's own, two fifths."""
    checks = the_share(0.8, 0.5).checks
    assert checks is not None
    assert checks.middle == pytest.approx(0.4, abs=0.02)
    assert checks.low < 0.4 < checks.high


def test_a_round_in_which_null_is_slow_by_noise_counts_as_any_other() -> None:
    """Its own quotient would be of no use; without such rounds the workload's part would look smaller."""
    row = row_make("cell", peers=ARMS)
    samples = [
        replace(one, seconds=(0.7, 0.8, 1.2)[one.slot % 3] * 0.25) if one.arm == NULL else one
        for one in samples_of(row, 0.9, 0.8)
    ]
    (share,) = ceiling_judge(judge(plan_of_rows(row), samples)).shares
    assert share.checks is not None
    assert share.checks.middle == pytest.approx(0.5, abs=0.03)
    assert share.checks.low < 0.5 < share.checks.high


def test_the_time_is_divided_without_an_interval_where_rounds_are_few() -> None:
    row = row_make("cell", peers=ARMS, rounds=4)
    (share,) = ceiling_judge(judge(plan_of_rows(row), samples_of(row, 0.8, 0.5))).shares
    assert share.checks is not None
    assert interval_text(share.checks).endswith("(too few pairs)")


def test_a_slower_ceiling_makes_the_cell_void() -> None:
    ceiling = judged(void=(1.1, 0.5), good=(0.9, 0.5), better=(0.95, 0.5))
    assert [share.state for share in ceiling.shares] == [State.VOID, State.BELOW, State.BELOW]
    assert ceiling.answers[0].workloads == 2
    assert "void: the ceiling is slower" in shares_grid(ceiling).rows[0]
    assert any(
        line.startswith("Void, since the ceiling") and "void" in line for line in answer_lines(ceiling)
    )


def test_a_false_win_makes_the_cell_void() -> None:
    row = row_make("cell", peers=ARMS)
    matrix = judge(plan_of_rows(row), samples_of(row, 0.8, 0.5, **{SAME: 1.1}))
    (share,) = ceiling_judge(matrix).shares
    assert share.state is State.VOID


def test_within_the_margin_the_ceiling_is_reached() -> None:
    assert the_share(1.0, 0.5).state is State.REACHED


@pytest.mark.parametrize(("ceiling", "null"), [(0.995, 0.99), (0.8, 0.9)])
def test_what_cannot_be_divided_is_not(ceiling: float, null: float) -> None:
    """The workload takes all the time; or the null allocator is the slower one."""
    assert the_share(ceiling, null).checks is None


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ({"a": (0.6, 0.5), "b": (0.62, 0.5), "c": (0.61, 0.5)}, "the checks"),
        ({"a": (0.9, 0.5), "b": (0.92, 0.5), "c": (0.91, 0.5)}, "the structure"),
        ({"a": (0.9, 0.5), "b": (0.6, 0.5), "c": (0.75, 0.5)}, "not decided"),
        ({"a": (0.6, 0.5)}, "not decided"),
    ],
)
def test_the_answer_is_computed(times: dict[str, tuple[float, float]], word: str) -> None:
    ceiling = judged(**times)
    assert ceiling.answers[0].word == word
    line = answer_lines(ceiling)[0].lower()
    said = word if word == "not decided" else f"it is {word}"
    assert f"? {said}: " in line


def test_without_a_valid_cell_there_is_no_answer() -> None:
    ceiling = judged(void=(1.2, 0.5))
    assert ceiling.answers == ()
    assert "Not decided" in answer_lines(ceiling)[0]
    assert ceiling_picture(ceiling) is None


def test_the_page_has_the_answer_the_shares_and_what_is_not_served() -> None:
    ceiling = judged(one=(0.8, 0.5), other=(0.9, 0.4))
    page = page_make(ceiling, "raw/").html()
    for part in ("Is it the structure or the checks", "one", "asks for 99 bytes", "<svg", "null allocator"):
        assert part in page
    assert refused_grid(ceiling).rows == (("growth", "asks for 99 bytes"),)


def test_a_page_that_cannot_be_written_takes_no_answer_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = row_make("cell", peers=ARMS)
    run = Kept(tmp_path / "run", plan_of_rows(row))
    run.store.append(samples_of(row, 0.8, 0.5))
    (run.folder / "report.html").mkdir()
    with pytest.raises(LabError, match=r"^cannot write \S+report\.html: Is a directory$"):
        ceiling_show(run, None, None)
    told = capsys.readouterr().out
    assert "Is it the structure or the checks" in told and "page: " not in told


def test_who_cannot_tell_what_it_did_is_not_called_wrong() -> None:
    null = replace(RUN, checksum=None)
    told = {"hakmem": RUN, "ceiling": RUN, "wrong": replace(RUN, checksum="bb"), "null": null}
    runs = work_compare(told, {name: Arm(Peer(name, "0", None, f"id of {name}")) for name in told})
    assert isinstance(runs["wrong"], Failure)
    assert runs["null"] is null and runs["hakmem"] is RUN


# ---- what counts for it -------------------------------------------------------------------------------------


@pytest.fixture
def stage(build: Path) -> Iterator[Stage]:
    if not (build / "bench/libceiling.so").is_file():
        pytest.skip("the ceiling is not built: ./hakmem build")
    with staged(Checkout.find(build)) as stage:
        yield stage


def counts(stage: Stage, cell: Cell) -> list[int]:
    return [int(word) for word in plan_of(stage, cell).split()]


def test_a_burst_holds_as_many_as_it_says(stage: Stage) -> None:
    threads, *classes = counts(stage, BY_NAME["LIFO burst, 4000 of 64 B"])
    assert threads == 1
    assert 4000 <= max(classes) == classes[3] < 4010  # of 64 bytes
    assert sum(classes) < 4100  # and what libc has


def test_every_thread_is_counted(stage: Stage) -> None:
    threads, *classes = counts(stage, BY_NAME["2 threads, 1-8 KiB"])
    assert threads == 2
    assert sum(classes) >= 256


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("512 KiB-2 MiB, 256 slots", "bytes at once; blocks go up to 65536"),
        ("growth by realloc, 1 block, by a quarter", "bytes at once; blocks go up to 65536"),
        ("producer and consumer", "a thread frees what another allocated"),
        ("hand-over of 1000 blocks", "a thread frees what another allocated"),
        ("start of `true`", "it starts other processes"),
        ("cold start, 64 of each class", "its figure is the first use of memory, which is prepared here"),
        ("peak, then idle for 10 s", "its figure is memory"),
    ],
)
def test_what_cannot_be_served_says_why(stage: Stage, name: str, reason: str) -> None:
    for _ in range(2):  # the second time from what was kept
        with pytest.raises(ProcessFailedError) as caught:
            plan_of(stage, BY_NAME[name])
        assert caught.value.outcome.startswith("not served: ")
        assert caught.value.outcome.endswith(reason)


def test_cells_that_cannot_be_served_are_left_out_with_their_reason(stage: Stage) -> None:
    cells = [BY_NAME["random mix, 256 slots"], BY_NAME["512 KiB-2 MiB, 256 slots"]]
    candidates, refused = ceiling_candidates(stage, cells)
    assert [one.name for one in candidates] == ["random mix, 256 slots"]
    assert list(refused) == ["512 KiB-2 MiB, 256 slots"]
    with pytest.raises(LabError, match="the ceiling serves none of these workloads: 512 KiB"):
        ceiling_candidates(stage, cells[1:])


@pytest.mark.parametrize(
    "name", ["random mix, 256 slots", "aligned and plain, 1000 slots", "2 threads, 1-8 KiB"]
)
def test_the_ceiling_does_the_same_work(stage: Stage, name: str) -> None:
    store, cell = PeerStore(stage.checkout), BY_NAME[name]
    conditions = Conditions(5, 0, tuple(sorted(os.sched_getaffinity(0)))[: cell.threads])
    runs = {
        arm: CellTask(stage, cell, cell.first_count).run(Arm(stage.peer(store.obtain(arm))), conditions)
        for arm in ("hakmem", NULL)
    }
    bare = arm_prepared(stage, cell, Arm(stage.peer(store.obtain(CEILING))))
    line = json_run(
        stage.program(cell.program), cell.command(cell.first_count, conditions.seed), bare, conditions
    )
    assert line["checksum"] == runs["hakmem"].checksum is not None
    assert runs[NULL].checksum is None
    assert runs[NULL].ops == runs["hakmem"].ops
    # All memory was there before the clock began.
    assert line["minor_faults"] < 50


def test_only_an_allocator_without_checks_is_prepared(stage: Stage) -> None:
    store, cell = PeerStore(stage.checkout), BY_NAME["random mix, 256 slots"]
    own, bare = (Arm(store.obtain(name)) for name in ("hakmem", CEILING))
    assert arm_prepared(stage, cell, own) is own
    assert PLAN_VARIABLE in dict(arm_prepared(stage, cell, bare).peer.environment)


def test_too_small_a_plan_is_a_failed_run_and_no_figure(stage: Stage) -> None:
    cell = BY_NAME["LIFO burst, 4000 of 64 B"]
    peer = stage.peer(PeerStore(stage.checkout).obtain(CEILING))
    table = (stage.checkout.root / "src/base/size_classes.h").read_text()
    found = re.search(r"#define SMALL_CLASSES (\d+)", table)
    assert found
    small = " ".join(["1", *("100" for _ in range(int(found[1])))])
    program = stage.program(cell.program)
    done = subprocess.run(
        [program, *cell.command(1, 1)],
        env={"LD_PRELOAD": str(peer.library), PLAN_VARIABLE: small},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "malloc(64) returned NULL" in done.stderr


# ---- live ---------------------------------------------------------------------------------------------------


def test_a_run_from_beginning_to_end(build: Path, tmp_path: Path) -> None:
    kept = tmp_path / "ceiling.json"
    options = ["--only", "64 of 64,512 KiB-2 MiB", "--budget", "4s", "--seed", "5", "--json", str(kept)]
    done = lab("ceiling", "--build", str(build), *options)
    assert done.returncode in (0, 3), done.stderr
    content = json.loads(kept.read_text())
    (share,) = content["shares"]
    assert share["workload"] == "LIFO burst, 64 of 64 B"
    assert share["share"]["pairs"] >= 2
    assert all(nanoseconds > 0 for nanoseconds in share["nanoseconds"].values())
    assert list(content["not_served"]) == ["512 KiB-2 MiB, 256 slots"]
    assert "Is it the structure or the checks" in done.stdout
    assert str(tmp_path) not in done.stdout


def test_an_interval_that_is_open_is_null_in_json_and_said_in_words() -> None:
    wide = Interval(0.5, -math.inf, math.inf)
    assert interval_text(wide) == "50 % (too few pairs)"
    assert finite({"a": [wide.low, {"b": wide.high}], "c": 1.0}) == {"a": [None, {"b": None}], "c": 1.0}


def test_a_program_is_no_workload_of_the_ceiling(build: Path) -> None:
    done = lab("ceiling", "--build", str(build), "--only", "lua")
    assert done.returncode == 2
    assert done.stderr == "hakmem: the ceiling serves workloads of bench/ only, not lua\n"


def test_without_checks_no_program_is_served(build: Path) -> None:
    done = lab("ab", "hakmem", "ceiling", "--build", str(build), "--budget", "2s", "--", "true")
    assert done.returncode == 2
    assert "ceiling has no checks" in done.stderr
