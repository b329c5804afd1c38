"""What the store knows, for one page: the newest run of the matrix, the one before it, every run by commit, the
newest ceiling, what `where` found, and the last check of the baseline. Needs no machine.

What is not in the store is not on the page; the page names the command that would provide it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import duckdb

from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.statistics.estimate import Estimate, Verdict
from hakmem_lab.studies.baseline import Gate
from hakmem_lab.studies.bench import Kept
from hakmem_lab.studies.ceiling import Ceiling, ceiling_judge
from hakmem_lab.studies.comparing import Result
from hakmem_lab.studies.judging import Matrix
from hakmem_lab.studies.matrix import RESULTS_FILE, MatrixPlan, machine_text
from hakmem_lab.studies.where import Where, where_read
from hakmem_lab.workloads.cells import Measure

SHARED_LEAST = 0.5
"""A run is compared with an earlier one that measured at least this share of its workloads."""
HISTORY_MAX = 12
BASELINE_KIND, BASELINE_FILE = "baseline", "check.json"
WHERE_KIND, WHERE_FILE = "where", "where.json"
CEILING_KIND, CEILING_FILE = "ceiling", "ceiling.json"
MATRIX_KIND = "bench"
T = TypeVar("T")


FAILS, SLOWER, FASTER, RUNS, AS_BEFORE = "fails now", "slower", "faster", "runs again", "as before"
CHANGE_ORDER = (FAILS, SLOWER, FASTER, RUNS, AS_BEFORE)


@dataclass(frozen=True)
class Change:
    """One workload against one peer, or hakmem alone in it, in an earlier run and in this one."""

    row: str
    against: str
    """Empty if hakmem failed in one of the two."""
    word: str
    then: Estimate | str
    """Or how it failed; empty if it did not."""
    now: Estimate | str

    @classmethod
    def of(cls, row: str, against: str, then: Estimate, now: Estimate) -> Change:
        """A change is reported only if the intervals do not overlap."""
        word = FASTER if now.low > then.high else SLOWER if now.high < then.low else AS_BEFORE
        return cls(row, against, word, then, now)

    @property
    def ratio(self) -> float | None:
        if isinstance(self.then, str) or isinstance(self.now, str):
            return None
        return self.now.ratio / self.then.ratio


@dataclass(frozen=True)
class Moment:
    """One run of the matrix in the history."""

    date: str
    commit: str
    workloads: int
    """How many of this run's workloads it measured, too."""
    times_glibc: float
    """The geometric mean over these, by medians."""


@dataclass(frozen=True)
class Check:
    """A check of the baseline."""

    before: str
    """The commit of the baseline."""
    gates: tuple[Gate, ...]


@dataclass(frozen=True)
class Overview:
    run: Kept
    matrix: Matrix
    before: MatrixPlan | None
    changes: tuple[Change, ...]
    """The largest loss first; empty without an earlier run."""
    others: tuple[str, ...]
    """Peers and workloads that are others now under the same name, so that they are no change."""
    history: tuple[Moment, ...]
    """Newest last."""
    ceiling: Ceiling | None
    where: tuple[Where, ...]
    """The newest result of each workload."""
    baseline: Check | None
    unread: tuple[str, ...]
    """Results that were skipped, because they are damaged or of another version of the laboratory."""

    @property
    def strengths(self) -> list[Result]:
        return sorted(self._clear(Verdict.AHEAD), key=lambda one: -_ratio(one))

    @property
    def weaknesses(self) -> list[Result]:
        return sorted(self._clear(Verdict.BEHIND), key=_ratio)

    def _clear(self, verdict: Verdict) -> list[Result]:
        return [one for one in self.matrix.losses_first if one.verdict is verdict and not one.row.memory]

    @property
    def larger(self) -> list[Result]:
        """Rows in which hakmem's peak is clearly larger, largest difference first."""
        found = [
            one for one in self.matrix.losses_first if one.memory and one.memory.verdict is Verdict.AHEAD
        ]
        return sorted(found, key=lambda one: -(one.memory.estimate.ratio if one.memory else 0.0))


def _ratio(result: Result) -> float:
    return result.estimate.ratio if result.estimate else math.nan


def overview_gather(checkout: Checkout, run: Path | None, since: Path | None) -> Overview:
    unread: list[str] = []
    runs = suite_runs(checkout.results(MATRIX_KIND), unread)
    kept, matrix = judged(run) if run else newest_judged(reversed(runs), unread)
    if matrix is None or kept is None:
        raise LabError("no complete run of the matrix is in bench_results: ./hakmem bench makes one")
    earlier = judged(since)[1] if since else newest_judged(runs_before(runs, kept), unread)[1]
    others = others_find(earlier.plan, matrix.plan) if earlier else ()
    return Overview(
        run=kept,
        matrix=matrix,
        before=earlier.plan if earlier else None,
        changes=tuple(changes_between(earlier, matrix, others)) if earlier else (),
        others=others,
        history=tuple(history_read(runs, kept.plan, unread)),
        ceiling=ceiling_newest(checkout.results(CEILING_KIND), unread),
        where=tuple(where_newest(checkout.results(WHERE_KIND), unread)),
        baseline=baseline_newest(checkout.results(BASELINE_KIND), unread),
        unread=tuple(dict.fromkeys(unread)),
    )


def judged(folder: Path) -> tuple[Kept, Matrix]:
    kept = Kept(folder, MatrixPlan.load(folder, MATRIX_KIND))
    return kept, kept.judged()


def readable(paths: Iterable[Path], read: Callable[[Path], T], unread: list[str]) -> Iterator[tuple[Path, T]]:
    """What can be read from PATHS, files in folders of runs; the kinds and runs of the others are added to UNREAD."""
    for path in paths:
        try:
            yield path, read(path)
        except LabError:
            unread.append(f"{path.parent.parent.name} {path.parent.name}")


# ---- runs of the matrix -----------------------------------------------------------------------------------


def suite_runs(folder: Path, unread: list[str]) -> dict[Path, MatrixPlan]:
    """Complete runs of whole suites, oldest first; runs of a few chosen workloads are not representative."""
    files = sorted(folder.glob(f"*/{RESULTS_FILE}"))
    plans = readable(files, lambda file: MatrixPlan.load(file.parent, MATRIX_KIND), unread)
    return {file.parent: plan for file, plan in plans if not plan.settings.only}


def newest_judged(runs: Iterable[Path], unread: list[str]) -> tuple[Kept, Matrix] | tuple[None, None]:
    """The first of RUNS whose samples exist and can be read."""
    files = (run / RESULTS_FILE for run in runs)
    found = readable(files, lambda file: judged(file.parent), unread)
    return next((one for _, one in found), (None, None))


def runs_before(runs: Mapping[Path, MatrixPlan], kept: Kept) -> Iterator[Path]:
    """Earlier runs on the same machine that measured most of its workloads, newest first."""
    names = {row.name for row in kept.plan.rows}
    for path, plan in reversed(runs.items()):
        if path.name >= kept.plan.run:
            continue
        shared = names & {row.name for row in plan.rows}
        if len(shared) >= SHARED_LEAST * len(names) and machine_text(plan.source) == machine_text(
            kept.plan.source
        ):
            yield path


def others_find(then: MatrixPlan, now: MatrixPlan) -> tuple[str, ...]:
    """The names in both plans that mean another library, or another workload."""
    peers = (name for name in now.peers if name in then.peers)
    before = {row.name: (row.program, row.arguments) for row in then.rows}
    return (
        *(name for name in peers if then.identities.get(name) != now.identities.get(name)),
        *(row.name for row in now.rows if before.get(row.name) not in (None, (row.program, row.arguments))),
    )


def changes_between(then: Matrix, now: Matrix, others: Collection[str]) -> list[Change]:
    """Each side compared with its peers of the same day, because absolute speeds of two days cannot be compared.
    Where hakmem fails in one of the two, that is the change. Without OTHERS."""
    changes = [one for one in _failures_between(then, now) if one.row not in others]
    for result in now.losses_first:
        if result.row.name in others or result.against in others:
            continue
        earlier = then.result(result.row.name, result.against)
        if earlier is None or earlier.estimate is None or result.estimate is None or result.row.memory:
            continue
        if Verdict.VOID in (earlier.verdict, result.verdict):
            continue
        changes.append(Change.of(result.row.name, result.against, earlier.estimate, result.estimate))
    return sorted(changes, key=lambda one: (CHANGE_ORDER.index(one.word), one.ratio or 0.0))


def _failures_between(then: Matrix, now: Matrix) -> list[Change]:
    """The workloads, also those about memory, in which hakmem failed in one and was compared in the other."""
    words = ((FAILS, now, then), (RUNS, then, now))
    return [
        Change(row.name, "", word, then.failed(row.name), now.failed(row.name))
        for word, failing, other in words
        for row in now.plan.rows
        if failing.failed(row.name) and not row.control and other.was_compared(row.name)
    ]


HISTORY = """
    WITH speeds AS (
        SELECT date, commit, task, slot, attempt, arm, ops / seconds AS speed
        FROM read_parquet({files}, union_by_name = true)
        WHERE kind = 'timed' AND outcome = '' AND seconds > 0
            AND arm IN ('hakmem', 'glibc') AND list_contains(?, task)
    ), tasks AS (
        SELECT own.date, own.commit, task, median(ln(own.speed / peer.speed)) AS ratio
        FROM speeds AS own JOIN speeds AS peer USING (task, slot, attempt)
        WHERE own.arm = 'hakmem' AND peer.arm = 'glibc'
        GROUP BY ALL
    )
    SELECT date, commit, count(*), exp(avg(ratio)) FROM tasks GROUP BY ALL
"""


def history_read(runs: Mapping[Path, MatrixPlan], plan: MatrixPlan, unread: list[str]) -> list[Moment]:
    """Every run of a whole suite on this machine, compared with glibc in the same rounds."""
    tasks = [
        row.name for row in plan.rows if row.measure is Measure.TIME and not row.control and not row.memory
    ]

    def read(file: Path) -> list[Moment]:
        files = sorted(str(path) for path in file.parent.glob("raw/*.parquet"))
        if not files:
            return []
        try:
            with duckdb.connect() as database:
                return [
                    Moment(*row)
                    for row in database.execute(HISTORY.format(files=_listed(files)), [tasks]).fetchall()
                ]
        except duckdb.Error as error:
            raise LabError(f"the samples cannot be read: {error}") from error

    machine = machine_text(plan.source)
    alike = (run / RESULTS_FILE for run, one in runs.items() if machine_text(one.source) == machine)
    return [moment for _, moments in readable(alike, read, unread) for moment in moments][-HISTORY_MAX:]


def _listed(files: Sequence[str]) -> str:
    quoted = ("'" + file.replace("'", "''") + "'" for file in files)
    return f"[{', '.join(quoted)}]"


# ---- what else there is -----------------------------------------------------------------------------------


def ceiling_newest(folder: Path, unread: list[str]) -> Ceiling | None:
    """Of whole groups or suites; runs of a few chosen workloads are not representative."""

    def read(file: Path) -> Ceiling | None:
        kept = Kept(file.parent, MatrixPlan.load(file.parent, CEILING_KIND))
        return None if kept.plan.settings.only else ceiling_judge(kept.judged())

    files = sorted(folder.glob(f"*/{CEILING_FILE}"), reverse=True)
    return next((ceiling for _, ceiling in readable(files, read, unread) if ceiling is not None), None)


def where_newest(folder: Path, unread: list[str]) -> list[Where]:
    """Results of hakmem as it is built here, by workload."""
    files = sorted(folder.glob(f"*/{WHERE_FILE}"))
    newest = {one.task: one for _, one in readable(files, where_read, unread) if one.arm == "hakmem"}
    return [newest[name] for name in sorted(newest)]


def baseline_newest(folder: Path, unread: list[str]) -> Check | None:
    files = sorted(folder.glob(f"*/{BASELINE_FILE}"), reverse=True)
    return next((check for _, check in readable(files, check_read, unread)), None)


def check_read(path: Path) -> Check:
    try:
        kept = json.loads(path.read_text())
        return Check(kept["before"], tuple(Gate(**one) for one in kept["gates"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} is not a check of this version: {error}") from error
