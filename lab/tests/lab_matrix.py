"""Made-up runs of the matrix for the tests of what judges and shows it."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hakmem_lab.measure.provenance import Provenance
from hakmem_lab.measure.rounds import RoundPlan
from hakmem_lab.measure.store import OBSERVED, TAIL, TIMED, Sample, SampleStore, provenance_columns
from hakmem_lab.studies.bench import KIND, Kept
from hakmem_lab.studies.comparing import peers_left
from hakmem_lab.studies.matrix import SAME, MatrixPlan, Row, Settings
from hakmem_lab.workloads.cells import Measure

PEERS = ("glibc", "mimalloc3", "jemalloc")
SETTINGS = Settings("quick", "", budget_seconds=60.0, limit_seconds=60.0, seed=7)
SOURCE = Provenance(
    date="2026-01-01 00:00 UTC",
    command="./hakmem bench --seed 7",
    commit="abc",
    build_id="id",
    compiler="cc",
    workload_compiler="cc",
    kernel="Linux 6",
    cpu="a processor",
    processors=2,
    thp="madvise",
    libc="glibc 2.36",
    peers=("hakmem 0 (id)",),
)
ROUNDS = 24
NOISE = 0.004


def row_make(name: str, peers: Sequence[str] = PEERS, rounds: int = ROUNDS, **changes: object) -> Row:
    arms = ("hakmem", *peers, SAME, SETTINGS.slowed)
    row = Row(
        name=name,
        group="small",
        program="program",
        arguments="1",
        threads=1,
        measure=Measure.TIME,
        control=False,
        memory=False,
        figure="",
        count=1000,
        rounds=RoundPlan(rounds, arms, rounds // 2, ("hakmem", SAME, SETTINGS.slowed), ("glibc",)),
        seconds=1.0,
    )
    return replace(row, **changes)  # type: ignore[arg-type]  # any field by its name


ROW = row_make("cell")


@dataclass
class NoTask:
    """Has what a plan asks of a task."""

    threads: int = 1
    measure: Measure = Measure.TIME


def plan_make(*rows: Row, peers: Sequence[str] = PEERS, kind: str = KIND) -> MatrixPlan:
    return MatrixPlan(kind, "run", SETTINGS, SOURCE, tuple(peers), {}, {"hakmem": "0 id"}, rows)


def samples_make(
    row: Row, noise: float = NOISE, rss: Mapping[str, float] | None = None, **ratios: float
) -> list[Sample]:
    """hakmem is so many times as fast as each, and by default as itself, and as its slowed copy by the slowdown. Every arm
    is in every round, so that each has enough for a verdict."""
    rng = random.Random(row.name)
    times = {"hakmem": 1.0, SAME: 1.0, SETTINGS.slowed: 1 + SETTINGS.slowdown_percent / 100, **ratios}
    samples = []
    for slot in range(row.rounds.rounds):
        for position, arm in enumerate(row.rounds.arms):
            seconds = 0.25 * times.get(arm, 1.5) * math.exp(rng.gauss(0, noise))
            one = sample_make(row, slot, arm, seconds, position)
            samples.append(replace(one, peak_rss_kib=round(2000 * (rss or {}).get(arm, 1.0))))
    return samples


def staged(row: Row, samples: Sequence[Sample]) -> list[Sample]:
    """What is left of them where only those run that the plan lets take part."""
    kept: list[Sample] = []
    for stage in row.rounds.stages:
        left = peers_left(row, kept, stage.start) if stage.start else []
        kept += [
            one for one in samples if one.slot in stage and one.arm in row.rounds.arms_at(one.slot, left)
        ]
    return kept


def sample_make(row: Row, slot: int, arm: str, seconds: float = 0.25, position: int = 0) -> Sample:
    return Sample(
        kind=TIMED,
        task=row.name,
        slot=slot,
        attempt=0,
        position=position,
        runs=len(row.rounds.arms),
        arm=arm,
        allocator=arm,
        version="1",
        identity="id",
        slowdown_percent=0.0,
        count=row.count,
        seed=1,
        padding=2,
        cpus="0",
        ops=1_000_000,
        seconds=seconds,
        wall_seconds=seconds + 0.01,
        cpu_seconds=seconds,
        peak_rss_kib=2000,
        minor_faults=1500,
        major_faults=0,
        involuntary_switches=1,
        steal_ticks=0,
        checksum="aa",
    )


def observed_make(row: Row, arm: str, scale: float = 1.0) -> Sample:
    trace = tuple((0.01 * step, round(1000 * scale * (1 + step % 7))) for step in range(30))
    return replace(
        sample_make(row, 0, arm),
        kind=OBSERVED,
        runs=1,
        rss_trace=trace,
        rss_mean_kib=3000 * scale,
        system_calls=round(50 * scale),
        latency_p50_ns=20 * scale,
        latency_p99_ns=90 * scale,
        latency_p999_ns=400 * scale,
        latency_max_ns=90_000 * scale,
    )


def tails_make(row: Row, tails: Mapping[str, Sequence[float]]) -> list[Sample]:
    """One p99.9 for each round, in ns."""
    return [
        replace(sample_make(row, slot, arm), kind=TAIL, runs=len(tails), latency_p999_ns=tail)
        for arm, all_tails in tails.items()
        for slot, tail in enumerate(all_tails)
    ]


def crashing(samples: Sequence[Sample], arm: str) -> list[Sample]:
    return [
        replace(one, outcome="crashed: signal 11", ops=None, seconds=None) if one.arm == arm else one
        for one in samples
    ]


def unserved(row: Row, arms: Sequence[str] = ("hakmem", *PEERS)) -> Row:
    """As the plan has a workload in which every allocator fails."""
    return replace(row, rounds=RoundPlan(0, ()), failures=dict.fromkeys(arms, "hung: 120 s"))


def of_task(samples: list[Sample], row: Row) -> list[Sample]:
    return [one for one in samples if one.task == row.name]


FEW = replace(ROW, rounds=replace(ROW.rounds, rounds=10, selection=2, near=("jemalloc",), named=("glibc",)))
"""With the fewest rounds that select: glibc is far behind, mimalloc 3 the best, jemalloc near it, and a goal is about glibc."""


def kept_make(folder: Path) -> Kept:
    """A lost row, a won one, one in which a peer crashed, and the control."""
    rows = [
        row_make("lost row"),
        row_make("won row"),
        row_make("crash row", failures={"glibc": "crashed: signal 11"}),
    ]
    plan = plan_make(*rows, row_make("still", control=True))
    run = Kept(folder, plan)
    plan.save(run.folder)
    store = SampleStore(run.folder / "raw", provenance_columns("run", SOURCE))
    ratios = {"lost row": 0.5, "won row": 1.5, "crash row": 1.2, "still": 1.0}
    for row in plan.rows:
        level = ratios[row.name]
        samples = samples_make(row, glibc=level, mimalloc3=level, jemalloc=level)
        if row.failures:
            samples = [one for one in samples if one.arm != "glibc"]
        clocked = tails_make(row, dict.fromkeys(("hakmem", *PEERS), [400.0] * 6))
        store.append([*samples, *(observed_make(row, arm) for arm in ("hakmem", *PEERS)), *clocked])
        store.compact()
    return run
