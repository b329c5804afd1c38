"""Scaling: points and what fits the machine, slopes of made-up runs whose truth is known, and one tiny run of its own."""

from __future__ import annotations

import json
import math
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.commands.scaling import axes_choose, command_text, scaling_show, sizes_read, threads_read
from hakmem_lab.errors import LabError
from hakmem_lab.measure.store import Sample
from hakmem_lab.reports.scaling import answer_lines, axis_grid, page_make, scaling_picture, slopes_grid
from hakmem_lab.studies.bench import Kept
from hakmem_lab.studies.judging import judge
from hakmem_lab.studies.matrix import SAME, MatrixPlan
from hakmem_lab.studies.scaling import (
    AXES,
    GIB,
    HEAP,
    KEEP,
    KIB,
    MIB,
    REPLACE,
    SIZE,
    THREADS,
    TOUCH,
    Point,
    Scaling,
    bytes_text,
    fitting,
    kept_points,
    points_make,
    scaling_judge,
)
from lab_command import lab
from lab_matrix import SETTINGS, crashing, plan_make, row_make, sample_make, unserved

OPS = 1_000_000
HEAPS = (1 * MIB, 10 * MIB, 100 * MIB, 1000 * MIB)


def run_make(
    whole: list[float], kept: list[float], noise: float = 0.003, rounds: int = 12
) -> tuple[MatrixPlan, list[Sample]]:
    """Along the heap's axis: nanoseconds of each point, of hakmem and of glibc, which is twice as slow."""
    points = [Point(HEAP, value) for value in HEAPS[: len(whole)]]
    rng = random.Random(1)
    rows, samples = [], []
    for point, ns, rest in zip(points, whole, kept, strict=True):
        for way, cost in ((REPLACE, ns), (KEEP, rest)):
            cell = point.cell(way)
            row = row_make(
                cell.name, ("glibc",), rounds=rounds, program="scaling", arguments=" ".join(cell.arguments)
            )
            rows.append(row)
            for slot in range(row.rounds.rounds):
                for arm in row.rounds.arms:
                    times = 2.0 if arm == "glibc" else 1.0
                    seconds = 1e-9 * OPS * cost * times * math.exp(rng.gauss(0, noise))
                    samples.append(of_memory(sample_make(row, slot, arm, seconds), point, times))
    return plan_make(*rows, peers=("glibc",), kind="scaling"), samples


def scaling_make(whole: list[float], kept: list[float], noise: float = 0.003, rounds: int = 12) -> Scaling:
    plan, samples = run_make(whole, kept, noise, rounds)
    matrix = judge(plan, samples)
    return scaling_judge(matrix, samples, kept_points(matrix))


def of_memory(sample: Sample, point: Point, times: float) -> Sample:
    """Resident: the slots, and TIMES as much as is live."""
    live = point.slots * 0.875 * point.size_bytes
    return replace(sample, peak_rss_kib=round((point.slots * 8 + times * live) / KIB))


# ---- points --------------------------------------------------------------------------------------------------


def test_axes_go_as_far_as_was_asked() -> None:
    assert (AXES[THREADS].values[0], AXES[THREADS].values[-1]) == (1, 32)
    assert (AXES[HEAP].values[0], AXES[HEAP].values[-1]) == (1 * MIB, 8 * GIB)
    assert (AXES[SIZE].values[0], AXES[SIZE].values[-1]) == (8, 64 * MIB)
    for name, axis in AXES.items():
        for value in axis.values:
            assert Point(name, value).slots >= Point(name, value).threads


def test_large_blocks_are_touched_in_runs_of_their_own() -> None:
    assert Point(SIZE, 4 * KIB).ways == (REPLACE, KEEP)
    assert Point(SIZE, 32 * KIB).ways == (REPLACE, KEEP, TOUCH)
    assert Point(SIZE, 32 * KIB).cell(TOUCH).memory
    assert Point(SIZE, 32 * KIB).name(KEEP) == "size 32 KiB, kept"


def test_what_does_not_fit_is_refused_with_what_it_needs() -> None:
    points = points_make({HEAP: [1 * MIB, 8 * GIB], SIZE: [64 * MIB]})
    fits, refused = fitting(points, 300 * MIB)
    assert [point.name(way) for point, way in fits] == [
        "heap 1 MiB",
        "heap 1 MiB, kept",
        "size 64 MiB",
        "size 64 MiB, kept",
    ]
    assert refused.keys() == {"heap 8 GiB", "heap 8 GiB, kept", "size 64 MiB, touched"}
    assert "may need 13" in refused["heap 8 GiB"] and "300 MiB are available" in refused["heap 8 GiB"]


def test_a_heap_that_holds_no_such_block_is_refused() -> None:
    with pytest.raises(LabError, match="size 1 GiB: 256 MiB are too little"):
        points_make({SIZE: [GIB]})


def test_bytes_are_told_as_people_write_them() -> None:
    assert [bytes_text(value) for value in (8, 1536, 64 * MIB, 8 * GIB)] == [
        "8 B",
        "1.5 KiB",
        "64 MiB",
        "8 GiB",
    ]


# ---- slopes --------------------------------------------------------------------------------------------------


def test_a_flat_cost_is_called_flat() -> None:
    line = scaling_make([20.0, 20.2, 19.9, 20.1], [5.0, 5.0, 5.0, 5.0]).line(HEAP, "hakmem")
    assert line is not None and line.word == "flat" and line.bend is None
    assert line.own is not None and line.own.middle == pytest.approx(1, abs=0.02)
    assert line.costs[0].memory == pytest.approx(1, abs=0.01)


def test_what_the_caches_cost_is_not_the_allocators() -> None:
    """The whole doubles with every tenfold, the allocator's own part stays what it is."""
    line = scaling_make([20.0, 30.0, 50.0, 90.0], [10.0, 20.0, 40.0, 80.0]).line(HEAP, "hakmem")
    assert line is not None and line.whole is not None and line.kept is not None and line.own is not None
    assert line.whole.low > 1.4 and line.kept.middle == pytest.approx(2, abs=0.02)
    assert line.own.low < 1 < line.own.high
    assert line.word in ("flat", "open")


def test_growth_of_the_allocators_own_part_is_seen_and_where_it_bends() -> None:
    line = scaling_make([20.0, 20.0, 20.0, 80.0], [5.0, 5.0, 5.0, 5.0]).line(HEAP, "hakmem")
    assert line is not None and line.word == "grows" and line.bend is not None
    assert (line.bend.before, line.bend.after) == HEAPS[2:4]
    assert line.bend.times.middle == pytest.approx(5, rel=0.05)


def test_a_part_that_cannot_be_told_has_no_slope() -> None:
    line = scaling_make([20.0, 30.0, 40.0], [5.0, 5.0, 40.0]).line(HEAP, "hakmem")
    assert line is not None and line.own is None and not line.costs[2].own_is_told
    assert line.whole is not None and line.word == "grows"


def test_few_rounds_are_told() -> None:
    scaling = scaling_make([20.0, 20.0, 20.0], [5.0, 5.0, 5.0], rounds=3)
    (line,) = answer_lines(scaling)
    assert "there were only 3 rounds" in line and slopes_grid(scaling).rows[0][-1] == "3"
    assert [one.word for one in scaling.lines] == ["open", "open"]


def test_an_axis_on_which_a_control_failed_is_void() -> None:
    plan, samples = run_make([20.0] * 4, [5.0] * 4)
    differs = [
        replace(one, seconds=1.1 * (one.seconds or 0))
        if (one.task, one.arm) == ("heap 10 MiB", SAME)
        else one
        for one in samples
    ]
    matrix = judge(plan, differs)
    scaling = scaling_judge(matrix, differs, kept_points(matrix))
    assert [one.word for one in scaling.lines] == ["void", "void"]
    assert "void, since a control failed" in answer_lines(scaling)[0]


@pytest.mark.parametrize(("rounds", "status"), [(12, 0), (3, 3)])
def test_an_axis_without_a_verdict_is_no_answer(rounds: int, status: int, tmp_path: Path) -> None:
    plan, samples = run_make([20.0] * 3, [5.0] * 3, rounds=rounds)
    run = Kept(tmp_path / "run", plan)
    plan.save(run.folder)
    run.store.append(samples)
    assert lab("scaling", "--from", str(run.folder)).returncode == status


def test_two_points_have_no_slope() -> None:
    line = scaling_make([20.0, 30.0], [5.0, 5.0]).line(HEAP, "glibc")
    assert line is not None and line.word == "not told"


def failing(names: dict[str, slice], arm: str = "hakmem", nobody: str = "") -> Scaling:
    """A flat cost; so many runs of each point fail, and nobody can be run at one of them."""
    plan, samples = run_make([20.0, 20.2, 19.9, 20.1], [5.0] * 4)
    for name, which in names.items():
        own = [one for one in samples if (one.task, one.arm) == (name, arm)]
        samples = [one for one in samples if one not in own[which]] + crashing(own[which], arm)
    samples = [one for one in samples if one.task != nobody]
    rows = tuple(unserved(row, ("hakmem", "glibc")) if row.name == nobody else row for row in plan.rows)
    matrix = judge(replace(plan, rows=rows), samples)
    return scaling_judge(matrix, samples, kept_points(matrix))


@pytest.mark.parametrize("which", [slice(None), slice(3, 4)], ids=["always", "once"])
def test_an_axis_on_which_hakmem_crashed_is_not_called_flat(which: slice) -> None:
    scaling = failing({"heap 1000 MiB": which})
    line, glibc = scaling.line(HEAP, "hakmem"), scaling.line(HEAP, "glibc")
    assert line is not None and glibc is not None
    assert (line.word, len(line.costs), glibc.word, glibc.absent) == ("open", 3, "flat", {})
    (said,) = answer_lines(scaling)
    assert "heap from 1 MiB to 100 MiB" in said and "not decided whether flat" in said
    assert said.endswith(" hakmem has no figure at 1000 MiB (crashed: signal 11).")
    place = slopes_grid(scaling).columns.index("no figure at")
    assert [row[place] for row in slopes_grid(scaling).rows] == ["1000 MiB (crashed: signal 11)", ""]


def test_a_twin_in_which_hakmem_crashed_is_named() -> None:
    (said,) = answer_lines(failing({"heap 10 MiB, kept": slice(None)}))
    assert said.endswith(" hakmem has no figure at 10 MiB, kept (crashed: signal 11).")


def test_a_point_at_which_every_allocator_fails_is_named() -> None:
    scaling = failing({}, nobody="heap 1000 MiB")
    (said,) = answer_lines(scaling)
    assert said.endswith(" hakmem has no figure at 1000 MiB (hung: 120 s).")
    assert [line.word for line in scaling.lines] == ["open", "open"]


def test_an_axis_on_which_hakmem_crashed_everywhere_has_its_crashes() -> None:
    names = {Point(HEAP, value).name(way): slice(None) for value in HEAPS for way in (REPLACE, KEEP)}
    scaling = failing(names)
    (said,) = answer_lines(scaling)
    assert (
        "there is no cost at any point. hakmem has no figure at 1 MiB (crashed: signal 11); 1 MiB, kept"
        in said
    )
    assert slopes_grid(scaling).rows[0][1:3] == ("hakmem", "not told")
    assert "blocks kept" in page_make(scaling, "raw/").html()


def test_the_page_says_it_all() -> None:
    scaling = scaling_make([20.0, 20.0, 20.0, 80.0], [5.0, 5.0, 5.0, 5.0])
    (line,) = answer_lines(scaling)
    assert (
        "heap from 1 MiB to 1000 MiB" in line and "cost grows" in line and "bends most from 100 MiB" in line
    )
    assert [row[:3] for row in slopes_grid(scaling).rows] == [
        ("heap", "hakmem", "grows"),
        ("heap", "glibc", "grows"),
    ]
    rows = axis_grid(scaling, HEAP).rows
    assert rows[0][0] == "1 MiB" and float(rows[0][1]) == pytest.approx(20, abs=0.2)
    assert float(rows[0][3]) == pytest.approx(15, abs=0.2) and rows[0][6] == "2.00"
    picture = scaling_picture(scaling)
    assert picture is not None and "<svg" in picture.svg
    assert "blocks kept" in page_make(scaling, "raw/").html()


def test_a_page_that_cannot_be_written_takes_no_answer_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, samples = run_make([20.0, 20.0, 20.0], [5.0, 5.0, 5.0])
    run = Kept(tmp_path / "run", plan)
    run.store.append(samples)
    (run.folder / "report.html").mkdir()
    with pytest.raises(LabError, match=r"^cannot write \S+report\.html: Is a directory$"):
        scaling_show(run, None, None)
    told = capsys.readouterr().out
    assert "heap from 1 MiB to 100 MiB" in told and "page: " not in told


# ---- the command line ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: threads_read("1,none"), "--threads takes numbers from 1 to 256, not 'none'"),
        (lambda: sizes_read("4", "sizes"), "--sizes: 4 bytes are out of range"),
        (lambda: axes_choose(["hep"], {}), "there is no axis 'hep'; there are: threads, heap, size"),
    ],
)
def test_wrong_words_are_refused(wrong: object, message: str) -> None:
    with pytest.raises(LabError) as caught:
        wrong()  # type: ignore[operator]
    assert str(caught.value) == message


def test_the_command_can_be_given_again() -> None:
    values = {THREADS: [], HEAP: [1 * MIB, 8 * MIB], SIZE: []}
    chosen = axes_choose([HEAP], values)
    text = command_text(SETTINGS, chosen, "glibc,/opt/lib/libmine.so")
    assert text.startswith(
        "./hakmem scaling --axes heap --heaps 1048576,8388608 --peers glibc,libmine.so --budget 60s"
    )


# ---- the workload, and a run ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [REPLACE, KEEP, TOUCH])
def test_the_workload_holds_what_it_says(build: Path, way: int) -> None:
    command = [build / "bench/scaling", "2", str(8 * MIB), str(16 * KIB), "1000", "1", str(way)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    line = json.loads(done.stdout)
    assert line["blocks"] == 8 * MIB // (14 * KIB) // 2 * 2
    assert line["ops"] == 1000
    touched = line["peak_rss_kib"] > 7 * KIB
    assert touched is (way == TOUCH)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1", str(1 << 44), str(1 << 30), "1", "1", "2"], "do not fit: "),
        (["4", "4096", "4096", "1", "1"], "LIVE is too little"),
        (["1", str(1 << 40), "8", "1", "1"], "LIVE is too much for blocks of SIZE"),
    ],
)
def test_the_workload_refuses_what_cannot_be(build: Path, arguments: list[str], message: str) -> None:
    command = [build / "bench/scaling", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and message in done.stderr and done.stdout == ""


def test_a_heap_that_was_named_and_does_not_fit_ends_the_command(build: Path) -> None:
    done = lab("scaling", "--heaps", "8192G", "--axes", "heap", "--peers", "glibc", "--build", str(build))
    assert done.returncode == 2
    assert "heap 8192 GiB does not fit the machine: it may need" in done.stderr


def test_a_quick_run_from_beginning_to_end(build: Path, tmp_path: Path) -> None:
    report, kept = tmp_path / "scaling.md", tmp_path / "scaling.json"
    arguments = [
        "--axes",
        "size",
        "--sizes",
        "16,1K,64K",
        "--peers",
        "glibc",
        "--budget",
        "5s",
        "--confidence",
        "60",
    ]
    done = lab(
        "scaling",
        *arguments,
        "--seed",
        "1",
        "--build",
        str(build),
        "--report",
        str(report),
        "--json",
        str(kept),
        seconds=1200,  # on a busy machine it is slow before the budget begins and after it ends
    )
    assert done.returncode in (0, 3), done.stderr  # by the number of rounds
    text = report.read_text()
    assert "size from 16 B to 64 KiB" in text and "scaling-costs.svg" in text
    assert report.with_name("scaling-costs.svg").read_text().startswith("<?xml")
    assert report.with_suffix(".parquet").is_file()
    lines = json.loads(kept.read_text())["lines"]
    assert [(line["axis"], line["allocator"]) for line in lines] == [("size", "hakmem"), ("size", "glibc")]
    for line in lines:
        assert [cost["value"] for cost in line["costs"]] == [16, 1024, 65536]
        assert all(cost["whole"]["middle"] > 0 and cost["memory"] > 0.5 for cost in line["costs"])
