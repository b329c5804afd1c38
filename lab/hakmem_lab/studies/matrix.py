"""The matrix: what is run under which allocators, for how many rounds; all of it fixed before the first round.

The plan is kept beside the samples. From both together everything in a report can be judged again, on any machine,
and an interrupted run can be continued.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING, text_write
from hakmem_lab.measure.provenance import Provenance
from hakmem_lab.measure.rounds import RoundPlan
from hakmem_lab.measure.store import disk_sync
from hakmem_lab.workloads.cells import Measure

SUBJECT = "hakmem"
SAME = "hakmem-again"
"""The A/A arm: the same library under another name."""
PLAN_FILE = "plan.json"
RESULTS_FILE = "results.csv"
"""Written last: a run that has it is complete."""


def slowed_name(percent: float) -> str:
    """The same form as Arm.name."""
    return f"{SAME} slowed by {percent:g} %"


@dataclass(frozen=True)
class Settings:
    suite: str
    only: str
    budget_seconds: float
    limit_seconds: float
    """The budget may be exceeded up to this, to reach the rounds that an interval needs."""
    margin: float = 0.03
    rss_margin: float = 0.05
    confidence: float = 0.99
    run_seconds_min: float = 0.2
    seed: int = 0

    @property
    def slowdown_percent(self) -> float:
        return 200 * self.margin

    @property
    def slowed(self) -> str:
        return slowed_name(self.slowdown_percent)


@dataclass(frozen=True)
class Row:
    """One workload of the matrix, with its share of the budget."""

    name: str
    group: str
    program: str
    arguments: str
    threads: int
    measure: Measure
    control: bool
    memory: bool
    """Its figure is memory; its speed is only shown beside it."""
    figure: str
    """The figure that it is about, if it is not one that every program has."""
    count: int
    """0: the amount of work is fixed."""
    rounds: RoundPlan
    failures: Mapping[str, str] = field(default_factory=dict)
    """Arms that failed before the rounds."""
    seconds: float = 0.0
    """Planned seconds for the rounds."""

    @property
    def served(self) -> bool:
        """Whether any allocator could be run in it before the rounds; if none, it has none."""
        return bool(self.rounds.arms)

    @classmethod
    def read(cls, kept: dict[str, Any]) -> Row:
        rounds = kept["rounds"]
        return cls(
            **kept
            | {
                "measure": Measure(kept["measure"]),
                "rounds": RoundPlan(
                    rounds["rounds"],
                    tuple(rounds["arms"]),
                    rounds["selection"],
                    tuple(rounds["always"]),
                    tuple(rounds.get("near", ())),
                    tuple(rounds.get("named", ())),
                ),
            }
        )


@dataclass(frozen=True)
class MatrixPlan:
    kind: str
    """The command that made it."""
    run: str
    settings: Settings
    source: Provenance
    peers: tuple[str, ...]
    """The peers that hakmem is compared with."""
    missing: Mapping[str, str]
    """Peers that were not available, and rows that could not be measured at all, each with its reason."""
    identities: Mapping[str, str]
    """Identity of every library and program that is measured."""
    rows: tuple[Row, ...]

    @property
    def subject(self) -> str:
        return SUBJECT

    @property
    def own(self) -> tuple[str, ...]:
        """The arms that are hakmem's library: itself, and its controls."""
        return (self.subject, SAME, self.settings.slowed)

    def save(self, folder: Path) -> None:
        content = asdict(self)
        for row in content["rows"]:
            row["measure"] = row["measure"].value
        text_write(folder / PLAN_FILE, json.dumps(content, indent=1) + "\n")
        disk_sync(folder / PLAN_FILE)
        disk_sync(folder)

    @classmethod
    def load(cls, folder: Path, kind: str) -> MatrixPlan:
        """An error if it is of another KIND: its samples answer another question."""
        path = folder / PLAN_FILE
        try:
            kept = json.loads(path.read_text(ENCODING))
            if "kind" not in kept:
                raise ValueError("it does not name the command that made it")
            if kept["kind"] != kind:
                raise LabError(f"{folder} is a run of `{kept['kind']}`, not of `{kind}`")
            source = Provenance(**kept["source"] | {"peers": tuple(kept["source"]["peers"])})
            return cls(
                kind=kind,
                run=kept["run"],
                settings=Settings(**kept["settings"]),
                source=source,
                peers=tuple(kept["peers"]),
                missing=kept["missing"],
                identities=kept["identities"],
                rows=tuple(Row.read(row) for row in kept["rows"]),
            )
        except OSError as error:
            raise LabError(f"{folder} holds no run: {PLAN_FILE}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise LabError(f"{folder}: {PLAN_FILE} is not a plan of this version: {error}") from error


@contextmanager
def measuring(folder: Path) -> Iterator[None]:
    """Locks the run of FOLDER for this process; an error if another process measures it."""
    with (folder / PLAN_FILE).open() as plan:
        try:
            fcntl.flock(plan, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(f"the run {folder.name} is being measured") from None
        yield


def is_measured(folder: Path) -> bool:
    """Whether a process measures it now."""
    try:
        with measuring(folder):
            return False
    except LabError:
        return True


def interrupted_find(results: Path, kind: str, settings: Settings, named: Sequence[str] = ()) -> Path:
    """The newest run of that KIND that is incomplete and not being measured; it must have been started with the same options. NAMED
    are the settings that need not be given again, and were."""
    runs = sorted((path.parent for path in results.glob(f"*/{PLAN_FILE}")), reverse=True)
    incomplete = [run for run in runs if not (run / RESULTS_FILE).exists() and not is_measured(run)]
    if not incomplete:
        kept = f"all {len(runs)} runs are complete, or are being measured" if runs else "no run was kept"
        raise LabError(f"there is nothing to resume: {kept}")
    plan = MatrixPlan.load(incomplete[0], kind)
    for name in ("suite", "only", "margin", "confidence", *named):
        then, now = getattr(plan.settings, name), getattr(settings, name)
        if then != now:
            what = name.removesuffix("_seconds")
            raise LabError(f"cannot resume {plan.run}: its {what} was '{then}', asked for is '{now}'")
    return incomplete[0]


def sameness_check(kept: MatrixPlan, identities: Mapping[str, str], machine: str) -> None:
    """Samples of different libraries, programs or machines are not one measurement."""
    if machine_text(kept.source) != machine:
        raise LabError(f"cannot resume {kept.run}: it ran on {machine_text(kept.source)}, this is {machine}")
    for name in sorted(kept.identities.keys() | identities.keys()):
        before, now = (where.get(name, "not measured") for where in (kept.identities, identities))
        if before != now:
            raise LabError(f"cannot resume {kept.run}: {name} was {before}, now it is {now}")


def machine_text(source: Provenance) -> str:
    return f"{source.cpu}, {source.processors} usable, {source.kernel}, huge pages {source.thp}"
