"""`ab` where the truth is known, on this machine: the same binary in both arms, or one of them slowed.

Outcomes are kept one by one; an interrupted session continues where it ended.
"""

from __future__ import annotations

import csv
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

from hakmem_lab.errors import LabError
from hakmem_lab.files import text_read
from hakmem_lab.measure.pairs import Comparison, Pair
from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.samples import RowWriter
from hakmem_lab.statistics.rates import Rate, rate_estimate
from hakmem_lab.studies.ab import Design, questions_ask
from hakmem_lab.studies.arrange import Calibrate, arrange
from hakmem_lab.studies.study import Study

SAME_TRUTH = "A/A"
SLOWED_TRUTH = "slowed"
LIVE_FILE = "live.csv"


@dataclass(frozen=True)
class Lived:
    """One comparison. Text and numbers as in the file."""

    truth: str
    verdict: str
    ratio: float
    low: float
    high: float
    pairs: int
    seconds: float
    reason: str
    setting: str
    """What must be the same for a session to be continued: library, workload, design."""


COLUMNS = tuple(Lived.__annotations__)


def live_setting(study: Study, bench: str, design: Design) -> str:
    identity = study.store.obtain("hakmem").identity
    return f"{identity[:12]} {bench} {asdict(design)}"


def live_read(path: Path) -> list[Lived]:
    """Without a last row that a full disk cut off."""
    whole, newline, _ = text_read(path).rpartition("\n")
    rows = list(csv.DictReader((whole + newline).splitlines()))
    try:
        return [
            Lived(
                row["truth"],
                row["verdict"],
                float(row["ratio"]),
                float(row["low"]),
                float(row["high"]),
                int(row["pairs"]),
                float(row["seconds"]),
                row["reason"],
                row["setting"],
            )
            for row in rows
        ]
    except (KeyError, TypeError, ValueError):
        raise LabError(f"{path.parent.name}/{path.name} is damaged: run without --resume") from None


def live_earlier(folder: Path, setting: str) -> list[Lived]:
    """The latest session in FOLDER; an error if its setting was different."""
    files = sorted(folder.glob(f"*/{LIVE_FILE}"))
    if not files:
        raise LabError("there is no earlier session to resume")
    lived = live_read(files[-1])
    if any(one.setting != setting for one in lived):
        raise LabError(
            f"the session {files[-1].parent.name} had another library, workload, budget or margin:"
            " run without --resume"
        )
    return lived


def live_run(
    study: Study,
    calibrate: Calibrate,
    setting: str,
    design: Design,
    count: int,
    earlier: Sequence[Lived],
    ran: Callable[[Lived], None],
) -> list[Lived]:
    """COUNT comparisons of each truth in random order, less those that an EARLIER session has. Each makes its own
    plan, as a separate `ab` does."""
    hakmem = study.store.obtain("hakmem")
    arranged = arrange(study.stage, hakmem, [hakmem], calibrate, design, study.rng)
    other = arranged.others[0]
    arms = {SAME_TRUTH: other, SLOWED_TRUTH: replace(other, slowdown_percent=design.slowdown_percent)}
    lived: list[Lived] = []
    writer = RowWriter(study.samples.path.with_name(LIVE_FILE), COLUMNS)
    try:
        for one in earlier:
            lived.append(one)
            writer.write(astuple(one))
        for truth in truths_left(earlier, count, study.rng):
            one = _live_ask(
                study, calibrate, setting, design, truth, arms[truth], arranged.base, arranged.controls
            )
            lived.append(one)
            writer.write(astuple(one))
            ran(one)
    finally:
        writer.close()
    return lived


def truths_left(earlier: Sequence[Lived], count: int, rng: random.Random) -> list[str]:
    left: list[str] = []
    for truth in (SAME_TRUTH, SLOWED_TRUTH):
        left += [truth] * max(0, count - sum(1 for one in earlier if one.truth == truth))
    rng.shuffle(left)
    return left


def _live_ask(
    study: Study,
    calibrate: Calibrate,
    setting: str,
    design: Design,
    truth: str,
    other: Arm,
    base: Arm,
    controls: dict[str, Comparison],
) -> Lived:
    started = time.monotonic()
    comparison = Comparison(truth, other, base)
    calibrated = calibrate(study.stage, [base], design, study.rng)
    wall = calibrated.wall_seconds[base]
    arms = [arm for one in (comparison, *controls.values()) for arm in (one.subject, one.other)]
    calibrated = replace(
        calibrated, wall_seconds={arm: wall * (1 + arm.slowdown_percent / 100) for arm in arms}
    )

    def keep(pair: Pair) -> None:
        study.samples.keep(calibrated.task.name, pair)

    used = time.monotonic() - started
    outcome = questions_ask(calibrated, [comparison], controls, design, study.rng, keep, seconds_used=used)
    answer = outcome.answers[0]
    estimate = answer.estimate
    return Lived(
        truth=truth,
        verdict=answer.word,
        ratio=round(estimate.ratio, 5),
        low=round(estimate.low, 5),
        high=round(estimate.high, 5),
        pairs=estimate.pairs,
        seconds=round(outcome.seconds, 2),
        reason=outcome.reason(answer),
        setting=setting,
    )


@dataclass(frozen=True)
class LiveRate:
    truth: str
    what: str
    rate: Rate


def live_rates(lived: Sequence[Lived]) -> list[LiveRate]:
    asked = {
        SAME_TRUTH: (("false win or loss", ("better", "worse")), ("equivalent", ("equivalent",))),
        SLOWED_TRUTH: (
            ("seen: worse", ("worse",)),
            ("wrong: better or equivalent", ("better", "equivalent")),
        ),
    }
    rates = []
    for truth, questions in asked.items():
        words = [one.verdict for one in lived if one.truth == truth]
        for what, verdicts in (*questions, ("inconclusive", ("inconclusive",))):
            hits = sum(1 for word in words if word in verdicts)
            rates.append(LiveRate(truth, what, rate_estimate(hits, len(words))))
        void = sum(1 for one in lived if one.truth == truth and one.reason.startswith("the run is void"))
        rates.append(LiveRate(truth, "of these void", rate_estimate(void, len(words))))
    return rates
