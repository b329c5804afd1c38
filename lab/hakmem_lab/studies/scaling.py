"""Does an operation cost the same whatever the number of threads, the amount of memory and the size of blocks?

There are three axes; on each the other two are fixed. At every point bench/scaling.c runs under every allocator in
interleaved rounds, together with its twin, which keeps its blocks and does the rest. The twin's cost is that of the
caches and the memory, whichever allocator is used; the difference of the two is the allocator's own part. For both
the slope of the logarithm of cost over that of the axis is estimated, and reported as the effect of a tenfold
increase on the cost. Its interval draws rounds anew at each point.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hakmem_lab.errors import LabError
from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.store import TIMED, Sample
from hakmem_lab.statistics.estimate import Verdict
from hakmem_lab.studies.candidates import Candidate, cell_candidate
from hakmem_lab.studies.comparing import NOT_MEASURED
from hakmem_lab.studies.judging import Matrix
from hakmem_lab.workloads.cell import COUNT_PLACE, SEED_PLACE, Cell, Group
from hakmem_lab.workloads.cells import CELLS

KIND = "scaling"
REPLACE, KEEP, TOUCH = 0, 1, 2
"""The ways of bench/scaling.c."""
PAGE_BYTES = 4096
SLOT_BYTES = 8
FILL_SECONDS = 5.0
"""Filling the largest heap, a cell's first run, takes about this long."""
SPARE = 1.5
"""An allocator may need this many times what is live."""
FLAT = 1.10
"""A tenfold increase may change the cost by up to this factor and still be called flat."""
RESAMPLES = 2000
ENOUGH_ROUNDS = 6
"""With fewer rounds, redrawing them hardly shows how much they differ."""
NO_VERDICT = ("void", "open", "not told")


Samples = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    name: str
    what: str
    values: tuple[int, ...]

    def text(self, value: int) -> str:
        return str(value) if self.name == THREADS else bytes_text(value)


THREADS, HEAP, SIZE = "threads", "heap", "size"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
AXES = {
    THREADS: Axis(THREADS, "64 MiB live, blocks of 192 to 256 B", (1, 2, 4, 8, 16, 32)),
    HEAP: Axis(
        HEAP,
        "one thread, blocks of 768 to 1024 B",
        (1 * MIB, 8 * MIB, 64 * MIB, 512 * MIB, 2 * GIB, 8 * GIB),
    ),
    SIZE: Axis(
        SIZE,
        "one thread, 256 MiB live",
        (8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB, 64 * MIB),
    ),
}
STILL = {THREADS: 1, HEAP: 256 * MIB, SIZE: 1 * KIB}
THREADS_STILL = {HEAP: 64 * MIB, SIZE: 256}


@dataclass(frozen=True)
class Point:
    """One place on an axis."""

    axis: str
    value: int

    @property
    def threads(self) -> int:
        return self.value if self.axis == THREADS else 1

    @property
    def live_bytes(self) -> int:
        """Bytes that blocks were requested for."""
        if self.axis == HEAP:
            return self.value
        return THREADS_STILL[HEAP] if self.axis == THREADS else STILL[HEAP]

    @property
    def size_bytes(self) -> int:
        """Size of the largest block."""
        if self.axis == SIZE:
            return self.value
        return THREADS_STILL[SIZE] if self.axis == THREADS else STILL[SIZE]

    @property
    def slots(self) -> int:
        """As in bench/scaling.c."""
        least = max(8, self.size_bytes * 3 // 4)
        return self.live_bytes // ((least + self.size_bytes) // 2) // self.threads * self.threads

    def needed_bytes(self, way: int) -> int:
        each = self.size_bytes if way == TOUCH else min(self.size_bytes, PAGE_BYTES)
        return int(self.slots * (SPARE * max(16, each) + SLOT_BYTES))

    @property
    def ways(self) -> tuple[int, ...]:
        """If only a part of each block is touched, its memory needs a run of its own."""
        return (REPLACE, KEEP, TOUCH) if self.size_bytes > PAGE_BYTES else (REPLACE, KEEP)

    def name(self, way: int) -> str:
        what = {REPLACE: "", KEEP: ", kept", TOUCH: ", touched"}[way]
        return f"{self.axis} {AXES[self.axis].text(self.value)}{what}"

    def cell(self, way: int) -> Cell:
        arguments = (self.threads, self.live_bytes, self.size_bytes, COUNT_PLACE, SEED_PLACE, way)
        return Cell(
            name=self.name(way),
            program="scaling",
            arguments=tuple(map(str, arguments)),
            first_count=max(100, 100_000 * KIB // max(KIB, self.size_bytes)) if way == TOUCH else 100_000,
            group=Group.MEMORY if way == TOUCH else Group.CONTROL if way == KEEP else Group.MID,
            threads=self.threads,
            switches_are_noise=self.threads == 1,
            ends_slowly=True,
            memory=way == TOUCH,
        )


def bytes_text(value: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if value >= unit:
            return f"{value / unit:g} {name}"
    return f"{value} B"


def points_make(axes: Mapping[str, Sequence[int]]) -> list[Point]:
    points = [Point(axis, value) for axis, values in axes.items() for value in sorted(set(values))]
    for point in points:
        if point.slots == 0:
            raise LabError(
                f"{point.name(REPLACE)}: {bytes_text(point.live_bytes)} are too little for such blocks"
            )
    return points


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * KIB
    raise LabError("/proc/meminfo does not say how much memory is available")


def fitting(points: Sequence[Point], available: int) -> tuple[list[tuple[Point, int]], dict[str, str]]:
    """Points, with their ways, that the machine has memory for; and the reasons for the others."""
    fits: list[tuple[Point, int]] = []
    refused: dict[str, str] = {}
    for point in points:
        for way in point.ways:
            needed = point.needed_bytes(way)
            if needed <= available:
                fits.append((point, way))
            else:
                refused[point.name(way)] = (
                    f"does not fit the machine: it may need {bytes_text(needed // MIB * MIB)}, and"
                    f" {bytes_text(available // MIB * MIB)} are available"
                )
    return fits, refused


def scaling_candidates(stage: Stage, chosen: Sequence[tuple[Point, int]]) -> list[Candidate]:
    """Including the laboratory's negative control."""
    cells = [point.cell(way) for point, way in chosen]
    return [cell_candidate(stage, cell) for cell in (*cells, *(cell for cell in CELLS if cell.control))]


# ---- judging ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """A value with its interval."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Cost:
    """The cost of one allocator at one point."""

    value: int
    rounds: int
    """The number of rounds that its interval is drawn from; with few it says little."""
    whole: Figure
    """Nanoseconds of a processor for an operation."""
    kept: Figure | None
    """The same with the blocks kept."""
    own: Figure | None
    """The difference: the allocator's part."""
    memory: float | None
    """Peak resident bytes beyond the workload's slots, for each live byte."""

    @property
    def own_is_told(self) -> bool:
        return self.own is not None and self.own.low > 0


@dataclass(frozen=True)
class Bend:
    """The largest step up of the cost from one point to the next."""

    before: int
    after: int
    times: Figure


@dataclass(frozen=True)
class Line:
    """One allocator along one axis."""

    axis: str
    allocator: str
    costs: tuple[Cost, ...]
    absent: Mapping[str, str]
    """Points without a cost, and twins and memories that failed, each with its reason."""
    whole: Figure | None
    """The effect of a tenfold increase on the cost; None with fewer than three points."""
    kept: Figure | None
    own: Figure | None
    """None also if the allocator's part cannot be told from the rest at a point."""
    bend: Bend | None
    """Of its own part if that is known, otherwise of the whole; only if it is clear of FLAT."""
    void: bool
    """A control failed at one of its points, or of their twins."""

    @property
    def fewest(self) -> Cost | None:
        """The point with the fewest rounds; None without a cost anywhere."""
        return min(self.costs, key=lambda cost: cost.rounds, default=None)

    @property
    def word(self) -> str:
        """For its own part, if that is known. Nothing good is said of an axis with points that are absent, and nothing
        of one with a failed control or with few rounds at a point."""
        judged = self.own or self.whole
        if judged is None:
            return "not told"
        if self.void:
            return "void"
        if any(cost.rounds < ENOUGH_ROUNDS for cost in self.costs):
            return "open"
        if judged.low > FLAT:
            return "grows"
        if self.absent:
            return "open"
        if judged.high < 1 / FLAT:
            return "falls"
        return "flat" if judged.low >= 1 / FLAT and judged.high <= FLAT else "open"


@dataclass(frozen=True)
class Scaling:
    matrix: Matrix
    points: tuple[Point, ...]
    lines: tuple[Line, ...]

    @cached_property
    def axes(self) -> list[str]:
        return list(dict.fromkeys(point.axis for point in self.points))

    def line(self, axis: str, allocator: str) -> Line | None:
        return next((one for one in self.lines if (one.axis, one.allocator) == (axis, allocator)), None)


def scaling_judge(matrix: Matrix, samples: Sequence[Sample], points: Sequence[Point]) -> Scaling:
    """From a run's samples alone. What failed now and then has no cost by its other runs."""
    runs: dict[tuple[str, str], list[Sample]] = {}
    failures = matrix.failures_timed
    for sample in samples:
        if (
            sample.kind == TIMED
            and (sample.task, sample.arm) not in failures
            and sample.ops
            and sample.seconds
        ):
            runs.setdefault((sample.task, sample.arm), []).append(sample)
    allocators = (matrix.plan.subject, *matrix.plan.peers)
    axes = list(dict.fromkeys(point.axis for point in points))
    processors, confidence = matrix.plan.source.processors, matrix.plan.settings.confidence
    rng = np.random.default_rng(matrix.plan.settings.seed)
    void = {one.row.name for one in matrix.results if one.verdict is Verdict.VOID and not one.row.memory}
    lines = [
        line_make(
            axis,
            name,
            [one for one in points if one.axis == axis],
            runs,
            processors,
            confidence,
            rng,
            failures,
            void,
        )
        for axis in axes
        for name in allocators
    ]
    return Scaling(matrix, tuple(points), tuple(lines))


def quiet_of(samples: Sequence[Sample]) -> list[Sample]:
    """The samples that nothing disturbed, if there are at least two."""
    quiet = [sample for sample in samples if not sample.disturbed]
    return quiet if len(quiet) > 1 else list(samples)


def nanoseconds(samples: Sequence[Sample], threads: int, processors: int) -> Samples:
    """Nanoseconds of a processor for one operation. Waiting threads count, too, as far as there are processors."""
    busy = min(threads, processors)
    return np.array([1e9 * busy * (one.seconds or 0.0) / (one.ops or 1) for one in quiet_of(samples)])


def medians_drawn(values: Samples, rng: np.random.Generator) -> Samples:
    """Medians of redrawn rounds; the last is that of the rounds themselves."""
    drawn = rng.choice(values, (RESAMPLES, len(values)))
    return np.append(np.median(drawn, axis=1), np.median(values))


def figure_make(drawn: Samples, confidence: float) -> Figure:
    """The last of DRAWN is the estimate."""
    low, high = np.quantile(drawn[:-1], [(1 - confidence) / 2, (1 + confidence) / 2])
    return Figure(float(drawn[-1]), float(low), float(high))


def tenfold(values: Sequence[int], costs: Sequence[Samples]) -> Samples | None:
    """The effect of a tenfold increase, by the least-squares slope in logarithms; None with fewer than three
    points."""
    if len(values) < 3:
        return None
    places = np.log10(np.array(values, dtype=float))
    places -= places.mean()
    logs = np.log10(np.stack(costs))
    slopes: Samples = places @ logs / float(places @ places)
    return np.asarray(10.0**slopes)


def line_make(
    axis: str,
    allocator: str,
    points: Sequence[Point],
    runs: Mapping[tuple[str, str], Sequence[Sample]],
    processors: int,
    confidence: float,
    rng: np.random.Generator,
    failures: Mapping[tuple[str, str], str],
    void: Collection[str],
) -> Line:
    costs: list[Cost] = []
    whole: list[Samples] = []
    kept: list[Samples] = []
    own: list[Samples] = []
    for point in points:
        replaced = runs.get((point.name(REPLACE), allocator))
        if not replaced:
            continue
        drawn = medians_drawn(nanoseconds(replaced, point.threads, processors), rng)
        whole.append(drawn)
        twin = runs.get((point.name(KEEP), allocator))
        rest = medians_drawn(nanoseconds(twin, point.threads, processors), rng) if twin else None
        if rest is not None:
            kept.append(rest)
            own.append(drawn - rest)
        touched = runs.get((point.name(TOUCH), allocator)) if TOUCH in point.ways else replaced
        costs.append(
            Cost(
                value=point.value,
                rounds=len(quiet_of(replaced)),
                whole=figure_make(drawn, confidence),
                kept=None if rest is None else figure_make(rest, confidence),
                own=None if rest is None else figure_make(drawn - rest, confidence),
                memory=memory_share(point, touched) if touched else None,
            )
        )
    values = [cost.value for cost in costs]
    told = all(cost.own_is_told for cost in costs)
    # A draw in which the part vanishes would have no logarithm.
    positive = [np.maximum(one, 1e-3) for one in own] if told else []
    slopes = (tenfold(values, whole), tenfold(values, kept) if len(kept) == len(values) else None)
    part = tenfold(values, positive) if told else None
    return Line(
        axis=axis,
        allocator=allocator,
        costs=tuple(costs),
        absent=absent_find(allocator, points, runs, failures),
        whole=None if slopes[0] is None else figure_make(slopes[0], confidence),
        kept=None if slopes[1] is None else figure_make(slopes[1], confidence),
        own=None if part is None else figure_make(part, confidence),
        bend=bend_find(values, positive or whole, confidence),
        void=any(point.name(way) in void for point in points for way in point.ways),
    )


def absent_find(
    allocator: str,
    points: Sequence[Point],
    runs: Mapping[tuple[str, str], Sequence[Sample]],
    failures: Mapping[tuple[str, str], str],
) -> dict[str, str]:
    absent = {}
    for point in points:
        for way in point.ways:
            key = (point.name(way), allocator)
            missing = NOT_MEASURED if way == REPLACE and key not in runs else ""
            if why := failures.get(key, missing):
                absent[point.name(way).removeprefix(f"{point.axis} ")] = why
    return absent


def bend_find(values: Sequence[int], costs: Sequence[Samples], confidence: float) -> Bend | None:
    steps = [
        Bend(before, after, figure_make(later / earlier, confidence))
        for before, after, earlier, later in zip(values, values[1:], costs, costs[1:], strict=False)
    ]
    clear = [one for one in steps if one.times.low > FLAT]
    return max(clear, key=lambda one: one.times.middle, default=None)


def memory_share(point: Point, samples: Sequence[Sample]) -> float | None:
    """By the median; it includes the program itself, a mebibyte and a half."""
    peaks = [one.peak_rss_kib for one in samples if one.peak_rss_kib]
    if not peaks:
        return None
    least = max(8, point.size_bytes * 3 // 4)
    live = point.slots * (least + point.size_bytes) / 2
    return (float(np.median(peaks)) * KIB - point.slots * SLOT_BYTES) / live


def kept_points(matrix: Matrix) -> list[Point]:
    """The points that the rows of a run on disk name."""
    named = {
        point.name(REPLACE): point
        for row in matrix.plan.rows
        if row.program == "scaling" and (point := _point_read(row.name, row.arguments)) is not None
    }
    return list(named.values())


def _point_read(name: str, arguments: str) -> Point | None:
    axis = name.partition(" ")[0]
    if axis not in AXES:
        return None
    threads, live, size, *_ = arguments.split()
    return Point(axis, int({THREADS: threads, HEAP: live, SIZE: size}[axis]))
