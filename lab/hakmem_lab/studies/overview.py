"""What the store knows, for one page: the newest run of the matrix, the one before it, every run by commit, the newest
ceiling, what `where` found, and the last check of the baseline. Needs no machine.

What is not in the store is not on the page, and the page names the command that would bring it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.statistics.estimate import Estimate, Verdict
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


@dataclass(frozen=True)
class Change:
    """One workload against one peer, in an earlier run and in this one."""

    row: str
    against: str
    then: Estimate
    now: Estimate

    @property
    def word(self) -> str:
        """Only where the intervals have nothing in common."""
        if self.now.low > self.then.high:
            return "faster"
        return "slower" if self.now.high < self.then.low else "as before"

    @property
    def ratio(self) -> float:
        return self.now.ratio / self.then.ratio


@dataclass(frozen=True)
class Moment:
    """One run of the matrix in the history."""

    date: str
    commit: str
    workloads: int
    """Of this run's that it measured, too."""
    times_glibc: float
    """The geometric mean over these, by medians."""


@dataclass(frozen=True)
class Overview:
    run: Kept
    matrix: Matrix
    before: MatrixPlan | None
    changes: tuple[Change, ...]
    """The largest loss first; empty without an earlier run."""
    history: tuple[Moment, ...]
    """Newest last."""
    ceiling: Ceiling | None
    where: tuple[Where, ...]
    """The newest of each workload."""
    baseline: dict[str, Any] | None

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
        """Where hakmem's peak is clearly larger, most first."""
        found = [
            one for one in self.matrix.losses_first if one.memory and one.memory.verdict is Verdict.AHEAD
        ]
        return sorted(found, key=lambda one: -(one.memory.estimate.ratio if one.memory else 0.0))


def _ratio(result: Result) -> float:
    return result.estimate.ratio if result.estimate else math.nan


def overview_gather(checkout: Checkout, run: Path | None, since: Path | None) -> Overview:
    matrices = checkout.results(MATRIX_KIND)
    chosen = run or newest_run(matrices)
    kept = Kept(chosen, MatrixPlan.load(chosen))
    matrix = kept.judged()
    before = since or run_before(matrices, kept)
    earlier = Kept(before, MatrixPlan.load(before)) if before else None
    return Overview(
        run=kept,
        matrix=matrix,
        before=earlier.plan if earlier else None,
        changes=tuple(changes_between(earlier.judged(), matrix)) if earlier else (),
        history=tuple(history_read(matrices, kept.plan)),
        ceiling=ceiling_newest(checkout.results(CEILING_KIND)),
        where=tuple(where_newest(checkout.results(WHERE_KIND))),
        baseline=baseline_newest(checkout.results(BASELINE_KIND)),
    )


# ---- runs of the matrix -----------------------------------------------------------------------------------


def suite_runs(folder: Path) -> dict[Path, MatrixPlan]:
    """Complete runs of whole suites, oldest first: some workloads that were picked out are not the picture."""
    runs = {}
    for path in sorted(path.parent for path in folder.glob(f"*/{RESULTS_FILE}")):
        try:
            plan = MatrixPlan.load(path)
        except LabError:  # of an earlier laboratory
            continue
        if not plan.settings.only:
            runs[path] = plan
    return runs


def newest_run(folder: Path) -> Path:
    runs = suite_runs(folder)
    if not runs:
        raise LabError("no complete run of the matrix is in bench_results: ./hakmem bench makes one")
    return list(runs)[-1]


def run_before(folder: Path, kept: Kept) -> Path | None:
    """The newest one before it on the same machine that measured most of its workloads."""
    names = {row.name for row in kept.plan.rows}
    for path, plan in reversed(suite_runs(folder).items()):
        if path.name >= kept.plan.run:
            continue
        shared = names & {row.name for row in plan.rows}
        if len(shared) >= SHARED_LEAST * len(names) and machine_text(plan.source) == machine_text(
            kept.plan.source
        ):
            return path
    return None


def changes_between(then: Matrix, now: Matrix) -> list[Change]:
    """Each side beside its peers of the same day: absolute speeds of two days say nothing of each other."""
    changes = []
    for result in now.losses_first:
        earlier = then.result(result.row.name, result.against)
        if earlier is None or earlier.estimate is None or result.estimate is None or result.row.memory:
            continue
        if Verdict.VOID in (earlier.verdict, result.verdict):
            continue
        changes.append(Change(result.row.name, result.against, earlier.estimate, result.estimate))
    order = ("slower", "faster", "as before")
    return sorted(changes, key=lambda one: (order.index(one.word), one.ratio))


HISTORY = """
    WITH speeds AS (
        SELECT run, date, commit, task, slot, attempt, arm, ops / seconds AS speed
        FROM read_parquet({files}, union_by_name = true)
        WHERE kind = 'timed' AND outcome = '' AND seconds > 0
            AND arm IN ('hakmem', 'glibc') AND list_contains(?, task)
    ), tasks AS (
        SELECT own.run, own.date, own.commit, task, median(ln(own.speed / peer.speed)) AS ratio
        FROM speeds AS own JOIN speeds AS peer USING (run, task, slot, attempt)
        WHERE own.arm = 'hakmem' AND peer.arm = 'glibc'
        GROUP BY ALL
    )
    SELECT date, commit, count(*), exp(avg(ratio)) FROM tasks GROUP BY run, date, commit ORDER BY run
"""


def history_read(folder: Path, plan: MatrixPlan) -> list[Moment]:
    """Every run of a whole suite on this machine, beside glibc in the same rounds."""
    machine = machine_text(plan.source)
    runs = [path for path, one in suite_runs(folder).items() if machine_text(one.source) == machine]
    files = sorted(str(path) for run in runs for path in run.glob("raw/*.parquet"))
    tasks = [
        row.name for row in plan.rows if row.measure is Measure.TIME and not row.control and not row.memory
    ]
    if not files or not tasks:
        return []
    with duckdb.connect() as database:
        try:
            rows = database.execute(HISTORY.format(files=_listed(files)), [tasks]).fetchall()
        except duckdb.Error as error:
            raise LabError(f"the samples cannot be read: {error}") from error
    return [Moment(*row) for row in rows][-HISTORY_MAX:]


def _listed(files: Sequence[str]) -> str:
    quoted = ("'" + file.replace("'", "''") + "'" for file in files)
    return f"[{', '.join(quoted)}]"


# ---- what else there is -----------------------------------------------------------------------------------


def ceiling_newest(folder: Path) -> Ceiling | None:
    """Of whole groups or suites: some workloads that were picked out are not the picture."""
    for path in sorted((path.parent for path in folder.glob(f"*/{CEILING_FILE}")), reverse=True):
        try:
            plan = MatrixPlan.load(path)
        except LabError:  # of an earlier laboratory
            continue
        if not plan.settings.only:
            return ceiling_judge(Kept(path, plan).judged())
    return None


def where_newest(folder: Path) -> list[Where]:
    """Of hakmem as it is built here; by workload."""
    newest: dict[str, Where] = {}
    for path in sorted(folder.glob(f"*/{WHERE_FILE}")):
        found = where_read(path)
        if found.arm == "hakmem":
            newest[found.task] = found
    return [newest[name] for name in sorted(newest)]


def baseline_newest(folder: Path) -> dict[str, Any] | None:
    checks = sorted(folder.glob(f"*/{BASELINE_FILE}"))
    if not checks:
        return None
    try:
        kept: dict[str, Any] = json.loads(checks[-1].read_text())
    except (OSError, ValueError) as error:
        raise LabError(f"{checks[-1].name} cannot be read: {error}") from error
    return kept
