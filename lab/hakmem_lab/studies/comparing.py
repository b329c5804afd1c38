"""One row against one peer: from the pairs within its rounds to a ratio, with all other figures beside it."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hakmem_lab.measure.rounds import NEAR, SELECTION_MIN, UNDECIDED
from hakmem_lab.measure.store import Sample
from hakmem_lab.statistics.estimate import Estimate, Verdict, mean_estimate, pairs_needed, ratio_estimate
from hakmem_lab.statistics.selection import fastest_beside
from hakmem_lab.studies.matrix import Row, Settings
from hakmem_lab.workloads.cells import Measure

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Memory:
    """Peak RSS: below one, hakmem is smaller."""

    estimate: Estimate
    verdict: Verdict
    subject_kib: float
    peer_kib: float


@dataclass(frozen=True)
class Result:
    """One cell against one peer."""

    row: Row
    against: str
    failure: str
    """What happened to the peer, or to hakmem, if there is nothing to compare."""
    estimate: Estimate | None
    verdict: Verdict
    disturbed: int
    shortest_run: float
    log_ratios: Mapping[int, float]
    """By place in the plan: all log ratios of speed that count."""
    unselected: tuple[float, ...]
    """Log ratios of the places before an arm was selected in which this one took part however it looked. A mean over
    workloads is made of these: in the others it took part because it had looked fast."""
    cpu: Estimate | None
    memory: Memory | None
    subject_faults: float
    peer_faults: float
    margin: float

    @property
    def detectable(self) -> float:
        return self.estimate.detectable(self.margin) if self.estimate else math.inf


class ArmSamples:
    """The samples of one row, by arm and round."""

    def __init__(self, row: Row, samples: Sequence[Sample]) -> None:
        self.row = row
        self._runs: dict[str, dict[tuple[int, int], Sample]] = defaultdict(dict)
        self.failures = dict(row.failures)
        for sample in samples:
            if sample.outcome or not has_speed(sample, row.measure):
                if self.failures.get(sample.arm) in (None, UNDECIDED):  # a failure of its own says more
                    self.failures[sample.arm] = sample.outcome or "failed: told no speed"
            else:
                self._runs[sample.arm][sample.slot, sample.attempt] = sample

    def pairs(
        self, subject: str, other: str, enough: int, places: range | None = None
    ) -> tuple[list[tuple[Sample, Sample]], int]:
        """The last undisturbed pair of each place, or of those of PLACES; if fewer than ENOUGH places have one, the
        last pair of every place. Also the number of disturbed pairs."""
        quiet: dict[int, tuple[Sample, Sample]] = {}
        every: dict[int, tuple[Sample, Sample]] = {}
        disturbed = 0
        for key in sorted(self._runs[subject].keys() & self._runs[other].keys()):
            if places is not None and key[0] not in places:
                continue
            pair = self._runs[subject][key], self._runs[other][key]
            every[key[0]] = pair
            if any(one.disturbed for one in pair):
                disturbed += 1
            else:
                quiet[key[0]] = pair
        chosen = quiet if len(quiet) >= enough else every
        return list(chosen.values()), disturbed

    def medians(self) -> dict[str, float]:
        return {
            arm: statistics.median(speed_of(run, self.row.measure) for run in runs.values())
            for arm, runs in self._runs.items()
            if runs
        }


def has_speed(sample: Sample, measure: Measure) -> bool:
    return bool(sample.ops and _clock(sample, measure))


def _clock(sample: Sample, measure: Measure) -> float:
    return (sample.cpu_seconds if measure is Measure.CPU else sample.seconds) or 0.0


def speed_of(sample: Sample, measure: Measure) -> float:
    return (sample.ops or 0) / _clock(sample, measure)


def compare(
    settings: Settings, row: Row, arms: ArmSamples, subject: str, other: str, selected: bool = False
) -> Result:
    """SELECTED: the other was chosen because of how it looked in the first rounds."""
    pairs, disturbed = _pairs_judged(settings, row, arms, subject, other, selected)
    before, _ = arms.pairs(subject, other, SELECTION_MIN, row.rounds.places_anyway(other))
    failure = next(
        (f"{arm} {arms.failures[arm]}" for arm in (subject, other) if arm in arms.failures),
        "" if pairs else NOT_MEASURED,
    )
    if failure:
        pairs, before = [], []
    ratios = _log_ratios(pairs, row.measure)
    estimate = _estimate(list(ratios.values()), settings.confidence)
    return Result(
        row=row,
        against=other,
        failure=failure,
        estimate=estimate,
        verdict=estimate.verdict(settings.margin) if estimate else Verdict.UNCLEAR,
        disturbed=disturbed,
        shortest_run=min((one.seconds or 0.0 for pair in pairs for one in pair), default=0.0),
        log_ratios=ratios,
        unselected=tuple(_log_ratios(before, row.measure).values()),
        cpu=_ratio_of(
            pairs, lambda one: one.ops / one.cpu_seconds if one.ops and one.cpu_seconds else None, settings
        ),
        memory=_memory(pairs, settings),
        subject_faults=_median([one.minor_faults for one, _ in pairs]) or 0.0,
        peer_faults=_median([peer.minor_faults for _, peer in pairs]) or 0.0,
        margin=settings.margin,
    )


def _pairs_judged(
    settings: Settings, row: Row, arms: ArmSamples, subject: str, other: str, selected: bool
) -> tuple[list[tuple[Sample, Sample]], int]:
    """A peer that was selected is judged without the rounds in which it looked fast. One that was not selected, but
    has all rounds because a goal names it, is judged without those in which it looked slow, if the others are
    enough."""
    enough = pairs_needed(settings.confidence)
    if selected or other in row.rounds.named:
        later = range(row.rounds.selection, row.rounds.rounds)
        pairs, disturbed = arms.pairs(subject, other, enough, later)
        if selected or len(pairs) >= enough:
            return pairs, disturbed
    return arms.pairs(subject, other, enough)


def _estimate(log_ratios: Sequence[float], confidence: float) -> Estimate | None:
    """With too few rounds for an interval by ranks, Student's is used, which assumes normal noise."""
    if not log_ratios:
        return None
    few = 1 < len(log_ratios) < pairs_needed(confidence)
    return mean_estimate(log_ratios, confidence) if few else ratio_estimate(log_ratios, confidence)


def _log_ratios(pairs: Sequence[tuple[Sample, Sample]], measure: Measure) -> dict[int, float]:
    return {one.slot: math.log(speed_of(one, measure) / speed_of(peer, measure)) for one, peer in pairs}


def peers_left(row: Row, samples: Iterable[Sample], before: int) -> list[str]:
    """After the first BEFORE places: if they are the selection, only its best; otherwise the peers near the fastest
    there."""
    if before == row.rounds.selection:
        best = peer_select(row, samples)
        return [best] if best else []
    arms = ArmSamples(row, [one for one in samples if one.slot < before])
    found = _ratios_beside_peers(row, arms, row.rounds.arms)
    lowest = {peer: min(ratios.values()) for peer, ratios in found.items() if ratios}
    return [peer for peer, ratio in lowest.items() if ratio <= min(lowest.values()) + math.log(NEAR)]


def _ratios_beside_peers(row: Row, arms: ArmSamples, names: Iterable[str]) -> dict[str, dict[int, float]]:
    plan = row.rounds
    pairs = {arm: arms.pairs(plan.subject, arm, SELECTION_MIN)[0] for arm in names if arm not in plan.always}
    return {peer: _log_ratios(found, row.measure) for peer, found in pairs.items()}


def peer_select(row: Row, samples: Iterable[Sample]) -> str | None:
    """The peer against which the subject looks slowest in the rounds of the selection. The choice does not depend
    on other samples, so it is the same in a run that is continued and in one that is judged again."""
    arms = ArmSamples(row, [one for one in samples if one.slot < row.rounds.selection])
    return fastest_beside(
        _ratios_beside_peers(row, arms, [arm for arm in row.rounds.arms if arm not in arms.failures])
    )


def _ratio_of(
    pairs: Sequence[tuple[Sample, Sample]], figure: Callable[[Sample], float | None], settings: Settings
) -> Estimate | None:
    figures = [(figure(one), figure(peer)) for one, peer in pairs]
    return _estimate([math.log(one / peer) for one, peer in figures if one and peer], settings.confidence)


def _memory(pairs: Sequence[tuple[Sample, Sample]], settings: Settings) -> Memory | None:
    estimate = _ratio_of(pairs, lambda one: one.peak_rss_kib, settings)
    subject = _median([one.peak_rss_kib for one, _ in pairs])
    peer = _median([peer.peak_rss_kib for _, peer in pairs])
    if estimate is None or subject is None or peer is None:
        return None
    return Memory(estimate, estimate.verdict(settings.rss_margin), subject, peer)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(statistics.median(known)) if known else None
