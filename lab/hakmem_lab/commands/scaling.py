"""`hakmem scaling`."""

from __future__ import annotations

import secrets
import shlex
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.allocators.arms import arm_shown
from hakmem_lab.allocators.peers import PeerStore
from hakmem_lab.checkout import Checkout, path_here
from hakmem_lab.commands.common import (
    BuildOption,
    JsonOption,
    PeersOption,
    ReportOption,
    SeedOption,
    again_check,
    grids_show,
    words_split,
)
from hakmem_lab.commands.units import bytes_parse, seconds_parse, seconds_text, share_parse
from hakmem_lab.errors import LabError, RunInterruptedError
from hakmem_lab.measure.stage import staged
from hakmem_lab.studies.bench import Kept, bench_plan, field_gather, rounds_measure
from hakmem_lab.studies.matrix import MatrixPlan, Settings
from hakmem_lab.studies.scaling import (
    AXES,
    HEAP,
    KIND,
    NO_VERDICT,
    SIZE,
    THREADS,
    available_bytes,
    fitting,
    kept_points,
    points_make,
    scaling_candidates,
    scaling_judge,
)

SECONDS_EACH = 45.0
"""Seconds for each point, with its twin."""


def scaling(
    ctx: typer.Context,
    axes: Annotated[str, typer.Option(help="Only these axes, comma-separated: threads, heap, size.")] = "",
    threads: Annotated[str, typer.Option(help="Numbers of threads, such as 1,2,4.")] = "",
    heaps: Annotated[str, typer.Option(help="Amounts of live memory, such as 1M,64M,8G.")] = "",
    sizes: Annotated[str, typer.Option(help="Sizes of blocks, such as 8,1K,64M.")] = "",
    peers: PeersOption = "glibc,mimalloc3",
    budget: Annotated[
        str, typer.Option(help="Total time, fixed in advance. Default: 45s for each point.")
    ] = "",
    margin: Annotated[str, typer.Option(help="Speeds this close are equal, such as 3%.")] = "3%",
    confidence: Annotated[
        float, typer.Option(min=50, max=99.9, help="Confidence of intervals, in per cent.")
    ] = 95.0,
    seed: SeedOption = None,
    kept: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Measure nothing; judge this run of bench_results/scaling again."
        ),
    ] = None,
    report: ReportOption = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """Does an operation cost the same whatever the number of threads, the amount of memory and the size of blocks?

    Exit status: 0 for an answer, 2 for an error, 3 if hakmem has a verdict on no axis, 130 if interrupted.
    """
    checkout = Checkout.find(build)
    if kept is not None:
        again_check(ctx)
        scaling_show(Kept(kept, MatrixPlan.load(kept, KIND)), report, json_file)
        return
    values = {
        THREADS: threads_read(threads),
        HEAP: sizes_read(heaps, "heaps"),
        SIZE: sizes_read(sizes, "sizes"),
    }
    chosen = axes_choose(words_split(axes), values)
    points = points_make(chosen)
    fits, refused = fitting(points, available_bytes())
    named = {axis for axis, given in values.items() if given}
    for point in points:  # what was named must be had
        why = next((refused[point.name(way)] for way in point.ways if point.name(way) in refused), "")
        if why and point.axis in named:
            raise LabError(f"{point.name(0)} {why}")
    seconds = seconds_parse(budget) if budget else SECONDS_EACH * len(points)
    settings = Settings(
        suite="scaling",
        only=",".join(chosen),
        budget_seconds=seconds,
        limit_seconds=1.5 * seconds,
        margin=share_parse(margin),
        confidence=confidence / 100,
        seed=secrets.randbits(32) if seed is None else seed,
    )
    command = command_text(settings, chosen, peers)
    try:
        with staged(checkout) as stage:
            candidates = scaling_candidates(stage, fits)
            field = field_gather(PeerStore(checkout), stage, words_split(peers), settings)
            run = bench_plan(checkout, field, candidates, settings, command, refused, KIND, best_only=False)
            rounds_measure(run, field, candidates, KIND, "point")
    except KeyboardInterrupt:
        raise RunInterruptedError("interrupted before the first round: nothing was measured") from None
    scaling_show(run, report, json_file)


def threads_read(text: str) -> list[int]:
    numbers = []
    for word in words_split(text):
        number = int(word) if word.isdecimal() and word.isascii() else 0
        if not 1 <= number <= 256:
            raise LabError(f"--threads takes numbers from 1 to 256, not '{word}'")
        numbers.append(number)
    return numbers


def sizes_read(text: str, what: str) -> list[int]:
    sizes = [bytes_parse(word, what) for word in words_split(text)]
    for size in sizes:
        if not 8 <= size <= (1 << 44 if what == "heaps" else 1 << 31):
            raise LabError(f"--{what}: {size} bytes are out of range")
    return sizes


def axes_choose(words: list[str], values: dict[str, list[int]]) -> dict[str, list[int]]:
    for word in words:
        if word not in AXES:
            raise LabError(f"there is no axis '{word}'; there are: {', '.join(AXES)}")
    return {
        name: values[name] or list(axis.values) for name, axis in AXES.items() if not words or name in words
    }


def command_text(settings: Settings, chosen: dict[str, list[int]], peers: str) -> str:
    """The command in a form that can be given again."""
    names = [arm_shown(word) for word in words_split(peers)]
    options = {THREADS: "--threads", HEAP: "--heaps", SIZE: "--sizes"}
    command = ["./hakmem", "scaling", "--axes", ",".join(chosen)]
    for axis, values in chosen.items():
        if tuple(values) != AXES[axis].values:
            command += [options[axis], ",".join(map(str, values))]
    command += ["--peers", ",".join(names), "--budget", seconds_text(settings.budget_seconds)]
    command += ["--margin", f"{100 * settings.margin:g}%", "--confidence", f"{100 * settings.confidence:g}"]
    return shlex.join([*command, "--seed", str(settings.seed)])


def scaling_show(run: Kept, report: Path | None, json_file: Path | None) -> None:
    """The run's own folder also gets its page and its figures."""
    # Drawing takes a second to load: not for --help and wrong options.
    from hakmem_lab.reports.scaling import answer_lines, grids_of, page_make, scaling_write

    matrix = run.judged()
    judged = scaling_judge(matrix, run.store.load(), kept_points(matrix))
    lines = answer_lines(judged)
    try:
        page = page_make(judged, "raw/").write_run(run.folder, run.store, report)
        for path in filter(None, (run.folder / "scaling.json", json_file)):
            scaling_write(judged, path)
        lines.append(f"page: {path_here(page)}")
    finally:  # also when the disk is full: the answer is there
        grids_show(grids_of(judged), lines)
    subject = matrix.plan.subject
    if all(line.word in NO_VERDICT for line in judged.lines if line.allocator == subject):
        raise typer.Exit(3)
