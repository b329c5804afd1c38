"""One run of the matrix from beginning to end: new, resumed, or judged again from what was kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.allocators.arms import arms_parse, peer_stage
from hakmem_lab.allocators.peers import Peer, PeerStore
from hakmem_lab.allocators.service import service_prove
from hakmem_lab.checkout import Checkout, path_here
from hakmem_lab.errors import LabError, ProcessFailedError, RunInterruptedError
from hakmem_lab.measure import provenance
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.store import TIMED, Sample, SampleStore, provenance_columns
from hakmem_lab.measure.task import Task
from hakmem_lab.studies.candidates import Candidate
from hakmem_lab.studies.judging import Matrix, judge
from hakmem_lab.studies.matrix import (
    SAME,
    SUBJECT,
    MatrixPlan,
    Row,
    Settings,
    interrupted_find,
    machine_text,
    measuring,
    sameness_check,
)
from hakmem_lab.studies.matrix_prepare import (
    observed_seconds,
    rows_plan,
    workload_of,
    works_find,
    works_observed,
)
from hakmem_lab.studies.matrix_run import rows_observe, rows_run, seconds_left
from hakmem_lab.studies.progress import duration_text, progress_shown
from hakmem_lab.workloads.cell import Measure, Suite

KIND = "bench"

FULL_ONLY = frozenset({"mimalloc3-nothp", "snmalloc-checks", "tcmalloc", "scudo"})
"""Peers that the quick suite leaves out unless they are named: variants of one that is included, and the slowest of
all. This shortens the selection."""


@dataclass(frozen=True)
class Kept:
    """A run on disk."""

    folder: Path
    plan: MatrixPlan

    @property
    def store(self) -> SampleStore:
        return SampleStore(self.folder / "raw", provenance_columns(self.plan.run, self.plan.source))

    def judged(self) -> Matrix:
        return judge(self.plan, self.store.load())


@dataclass(frozen=True)
class Field:
    """The participants: hakmem, its peers, and the controls."""

    hakmem: Peer
    peers: tuple[Peer, ...]
    missing: Mapping[str, str]
    arms: tuple[Arm, ...]

    @property
    def measured(self) -> list[Peer]:
        return [self.hakmem, *self.peers]


def field_gather(store: PeerStore, stage: Stage, names: Sequence[str], settings: Settings) -> Field:
    """A named peer must be available; of the suite's own peers, those that are available take part."""
    own = store.obtain(SUBJECT)
    if names:
        found, absent = arms_parse(names, store), []
    else:
        found, absent = store.obtain_default(FULL_ONLY if settings.suite == Suite.QUICK else ())
    missing = {one.name: one.why for one in absent}
    hakmem, again = stage.peer(own), stage.peer(own, SAME)
    staged = [
        peer_stage(stage, peer, f"peer-{number}") for number, peer in enumerate(found) if peer.name != SUBJECT
    ]
    for peer in (hakmem, *staged):
        complaint = service_complaint(stage, peer)
        if complaint and (names or peer is hakmem):
            raise LabError(complaint)
        if complaint:
            missing[peer.name] = complaint
    peers = tuple(peer for peer in staged if peer.name not in missing)
    if not peers:
        raise LabError("there is no peer to compare hakmem with")
    arms = (Arm(hakmem), *(Arm(peer) for peer in peers), Arm(again), Arm(again, settings.slowdown_percent))
    return Field(hakmem, peers, missing, arms)


def service_complaint(stage: Stage, peer: Peer) -> str:
    """Why it does not serve. A crash is no reason to leave it out; that is its result in every row."""
    try:
        service_prove(stage, peer, cpus_allowed())
    except ProcessFailedError:
        return ""
    except LabError as error:
        return str(error)
    return ""


def identities_of(field: Field, candidates: Sequence[Candidate], rows: Sequence[Row]) -> dict[str, str]:
    """What must be the same when a run is continued. Of the candidates those are measured that have a row."""
    identities = {peer.name: f"{peer.version} {peer.identity}" for peer in field.measured}
    measured = {row.name for row in rows}
    for candidate in candidates:
        if candidate.name in measured:
            identities |= candidate.identities
    return identities


def bench_plan(
    checkout: Checkout,
    field: Field,
    candidates: Sequence[Candidate],
    settings: Settings,
    command: str,
    missing: Mapping[str, str],
    kind: str = KIND,
    best_only: bool = True,
) -> Kept:
    """Finds the work of all rows and divides what the budget leaves. BEST_ONLY: the question is which peer is best,
    and runs with instruments take part of the budget. Otherwise each peer has a figure of its own, its speed."""
    began = time.monotonic()
    program = next((one.program for one in candidates if one.first_count), None)
    source = provenance.collect(checkout, command, program, field.measured)
    with progress_shown("preparing", len(candidates), float(len(candidates))) as step:
        works = works_find(candidates, field.arms, settings, step)
    watching = observed_seconds(works.values()) if best_only else 0.0
    spent = time.monotonic() - began + watching
    left, limit = (max(1.0, seconds - spent) for seconds in (settings.budget_seconds, settings.limit_seconds))
    rows = rows_plan(candidates, works, settings, left, limit, best_only)
    folder = checkout.results_new(kind)
    plan = MatrixPlan(
        kind=kind,
        run=folder.name,
        settings=settings,
        source=source,
        peers=tuple(peer.name for peer in field.peers),
        missing={**field.missing, **missing},
        identities=identities_of(field, candidates, rows),
        rows=tuple(rows),
    )
    kept = Kept(folder, plan)
    plan.save(kept.folder)
    tasks = {one.name: one.task_of(0) for one in candidates}
    watched = works_observed(rows, works, tasks, field.arms, settings)
    if watched:
        kept.store.append(watched)
    expected = sum(row.seconds for row in rows) + watching
    print(
        f"hakmem: {len(rows)} workloads under {len(field.measured)} allocators; about {duration_text(expected)} from now",
        file=sys.stderr,
    )
    return kept


def run_resumable(checkout: Checkout, settings: Settings, named: Sequence[str]) -> Kept:
    """NAMED are the settings that were given though they need not be."""
    folder = interrupted_find(checkout.results(KIND), KIND, settings, named)
    return Kept(folder, MatrixPlan.load(folder, KIND))


def resume_check(
    plan: MatrixPlan,
    checkout: Checkout,
    field: Field,
    candidates: Sequence[Candidate],
    missing: Mapping[str, str],
) -> None:
    """An error unless every row of the PLAN can go on as it began. MISSING are workloads that cannot run now."""
    rows_check(plan, candidates, missing)
    now = provenance.collect(checkout, "", None, field.measured)
    sameness_check(plan, identities_of(field, candidates, plan.rows), machine_text(now))


def rows_check(plan: MatrixPlan, candidates: Sequence[Candidate], missing: Mapping[str, str]) -> None:
    by_name = {candidate.name: candidate for candidate in candidates}
    for row in plan.rows:
        where = f"cannot resume {plan.run}: {row.name}"
        candidate = by_name.get(row.name)
        if candidate is None:
            raise LabError(f"{where}: {missing.get(row.name, 'there is no such workload any more')}")
        for name, now in workload_of(candidate, row.count).items():
            then = getattr(row, name)
            if then != now:
                raise LabError(f"{where}: its {name}: '{_said(then)}' then, '{_said(now)}' now")


def _said(value: object) -> object:
    return value.value if isinstance(value, Measure) else value


def bench_measure(kept: Kept, field: Field, candidates: Sequence[Candidate]) -> None:
    """The rounds, then the runs with instruments; samples that an interrupted run kept are not measured again."""
    plan, store = kept.plan, kept.store
    tasks_of = {candidate.name: candidate.task_of for candidate in candidates}
    with measuring(kept.folder), interruptions_told(kept):
        store.compact()
        samples = store.load()  # once no other process adds any
        rounds_shown(kept, field, tasks_of, "row", samples)
        with progress_shown("instruments", len(plan.rows), float(len(plan.rows))) as step:
            rows_observe(plan.rows, tasks_of, field.arms, plan.settings.seed, store, step, samples)


def rounds_measure(kept: Kept, field: Field, candidates: Sequence[Candidate], kind: str, what: str) -> None:
    """The rounds alone, without runs with instruments. WHAT is the name of a row in the progress display."""
    tasks_of = {candidate.name: candidate.task_of for candidate in candidates}
    with interruptions_told(kept, kind):
        rounds_shown(kept, field, tasks_of, what)


def rounds_shown(
    kept: Kept,
    field: Field,
    tasks_of: Mapping[str, Callable[[int], Task]],
    what: str,
    samples: Sequence[Sample] = (),
) -> None:
    """SAMPLES are those that an interrupted run kept."""
    plan = kept.plan
    tasks = {row.name: tasks_of[row.name](row.count) for row in plan.rows}
    for one in samples:
        if one.kind == TIMED and not one.outcome:
            tasks[one.task].backing.learn(one.peak_rss_kib)
    with progress_shown(what, len(plan.rows), seconds_left(plan.rows, samples)) as step:
        rows_run(plan.rows, tasks, field.arms, plan.settings.seed, kept.store, step, samples)


@contextmanager
def interruptions_told(kept: Kept, kind: str = KIND) -> Iterator[None]:
    goes_on = ", and --resume goes on" if kind == KIND else ""
    where = f"what was measured is in {path_here(kept.folder)}{goes_on}"
    try:
        yield
    except KeyboardInterrupt:
        raise RunInterruptedError(f"interrupted; {where}") from None
    except LabError as error:
        raise LabError(f"{error}; {where}") from error
