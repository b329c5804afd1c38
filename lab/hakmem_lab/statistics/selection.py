"""Many peers, many cells: how not to be misled by the luckiest of them.

The best peer of a cell is selected on the first rounds and compared on the others, because the peer that looks best
on a sample looks better there than it is. The cells' verdicts are corrected for their number by Holm's method.

The test is Student's on log ratios: a rank test on a dozen rounds cannot reach the thresholds of fifty cells
whatever the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from hakmem_lab.statistics.estimate import Estimate, mean_estimate

LogRatios = Mapping[int, float]
"""By round."""

ROUNDS_MIN = 2
"""With fewer rounds than this nothing is selected or compared."""


@dataclass(frozen=True)
class Best:
    """The subject compared with the best of its peers."""

    peer: str
    estimate: Estimate
    """From rounds on which it was not selected."""
    p_value: float
    """For the hypothesis that the ratio lies within the margin, or on the other side of 1."""


def fastest_beside(peers: Mapping[str, LogRatios]) -> str | None:
    """The peer that looks fastest, that is, to which the subject's log ratio is lowest; None if no peer has enough
    rounds."""
    medians = [
        (float(np.median(list(ratios.values()))), name)
        for name, ratios in peers.items()
        if len(ratios) >= ROUNDS_MIN
    ]
    return min(medians)[1] if medians else None


def best_compare(peer: str, log_ratios: Sequence[float], margin: float, confidence: float) -> Best | None:
    """None if there are too few rounds."""
    if len(log_ratios) < ROUNDS_MIN:
        return None
    return Best(peer, mean_estimate(log_ratios, confidence), margin_p_value(log_ratios, margin))


def margin_p_value(log_ratios: Sequence[float], margin: float) -> float:
    """Two-sided: how likely a ratio this clear is if the true ratio is no further from 1 than the margin."""
    distance = abs(float(np.mean(log_ratios))) - math.log1p(margin)
    error = float(np.std(log_ratios, ddof=1)) / math.sqrt(len(log_ratios))
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return min(1.0, 2 * float(stats.t.sf(distance / error, len(log_ratios) - 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the given order: rejecting those below a level keeps the chance of any false rejection
    below it."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return [float(value) for value in adjusted]
