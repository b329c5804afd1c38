"""From log ratios of pairs to an estimate, an interval and a verdict.

The estimate is Hodges and Lehmann's: the median of all Walsh averages. Its interval inverts the Wilcoxon signed
rank test, so it holds for any symmetric noise, whatever its shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Samples = NDArray[np.float64]

EXACT_PAIRS_MAX = 1000
"""Beyond this the exact distribution no longer fits in a float; no study measures that many pairs."""


class Verdict(Enum):
    AHEAD = "ahead"
    BEHIND = "behind"
    EQUAL = "equal within margin"
    UNCLEAR = "unclear"
    VOID = "void"


@dataclass(frozen=True)
class Estimate:
    """A ratio, with the interval that holds it at the requested confidence."""

    ratio: float
    low: float
    high: float
    pairs: int

    def verdict(self, margin: float) -> Verdict:
        """MARGIN is a share: 0.03 treats ratios from 1/1.03 to 1.03 as equal."""
        if self.low > 1 + margin:
            return Verdict.AHEAD
        if self.high < 1 / (1 + margin):
            return Verdict.BEHIND
        if self.low >= 1 / (1 + margin) and self.high <= 1 + margin:
            return Verdict.EQUAL
        return Verdict.UNCLEAR

    def detectable(self, margin: float) -> float:
        """The smallest ratio that an interval of this width would have called ahead."""
        if not math.isfinite(self.high) or self.low <= 0:
            return math.inf
        return (1 + margin) * math.sqrt(self.high / self.low)


def signed_rank_distribution(count: int) -> Samples:
    """P(sum of the positive ranks = k) for k from 0 to count(count+1)/2 when signs are fair coins."""
    if not 0 <= count <= EXACT_PAIRS_MAX:
        raise ValueError(f"{count} pairs")
    chances = np.zeros(count * (count + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, count + 1):
        shifted = np.zeros_like(chances)
        shifted[rank:] = chances[:-rank]
        chances = (chances + shifted) / 2
    return chances


@lru_cache(maxsize=4096)
def interval_rank(count: int, confidence: float) -> int:
    """How many Walsh averages lie outside the interval at each end, plus one; 0 if COUNT is too small for the
    confidence."""
    tail = (1 - confidence) / 2
    cumulative = np.cumsum(signed_rank_distribution(count))
    return int(np.searchsorted(cumulative, tail * (1 + 1e-12), side="right"))


@lru_cache(maxsize=256)
def pairs_needed(confidence: float) -> int:
    """The fewest pairs that can give a bounded interval."""
    count = 1
    while interval_rank(count, confidence) == 0:
        count += 1
    return count


def walsh_averages(values: ArrayLike) -> Samples:
    """All averages of two values and of each value with itself, ascending."""
    sample = np.asarray(values, dtype=float)
    first, second = np.triu_indices(len(sample))
    return np.sort((sample[first] + sample[second]) / 2)


def hodges_lehmann(values: ArrayLike, confidence: float) -> tuple[float, float, float]:
    """Estimate of the centre, and its interval; unbounded if there are too few values."""
    averages = walsh_averages(values)
    if len(averages) == 0:
        raise ValueError("no values")
    count = len(np.asarray(values))
    rank = interval_rank(count, confidence)
    centre = float(np.median(averages))
    if rank == 0:
        return centre, -math.inf, math.inf
    return centre, float(averages[rank - 1]), float(averages[-rank])


def ratio_estimate(log_ratios: ArrayLike, confidence: float) -> Estimate:
    centre, low, high = hodges_lehmann(log_ratios, confidence)
    return Estimate(
        ratio=math.exp(centre),
        low=math.exp(low) if math.isfinite(low) else 0.0,
        high=math.exp(high) if math.isfinite(high) else math.inf,
        pairs=len(np.asarray(log_ratios)),
    )


def student_interval(values: ArrayLike, confidence: float) -> tuple[float, float, float]:
    """The mean of two values or more, and Student's interval."""
    sample = np.asarray(values, dtype=float)
    mean, error = float(np.mean(sample)), float(np.std(sample, ddof=1)) / math.sqrt(len(sample))
    reach = float(stats.t.ppf((1 + confidence) / 2, len(sample) - 1)) * error
    return mean, mean - reach, mean + reach


def mean_estimate(log_ratios: ArrayLike, confidence: float) -> Estimate:
    """The geometric mean, with noise assumed to be normal: for too few pairs for ranks, or for many tests."""
    mean, low, high = student_interval(log_ratios, confidence)
    return Estimate(math.exp(mean), math.exp(low), math.exp(high), len(np.asarray(log_ratios)))


def suite_estimate(cells: Sequence[ArrayLike], confidence: float) -> Estimate:
    """The geometric mean over cells. The cells are the sample, so two of them say little however many pairs they
    have. For a single cell it is that cell's."""
    if len(cells) == 1:
        return ratio_estimate(cells[0], confidence)
    found = mean_estimate([float(np.median(walsh_averages(cell))) for cell in cells], confidence)
    return replace(found, pairs=sum(len(np.asarray(cell)) for cell in cells))
