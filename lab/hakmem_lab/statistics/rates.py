"""How often something happened: the exact interval of Clopper and Pearson, and whether chance explains it."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.stats import binomtest


@dataclass(frozen=True)
class Rate:
    hits: int
    trials: int
    low: float
    high: float

    @property
    def text(self) -> str:
        if not self.trials:
            return "none tried"
        return f"{self.hits} of {self.trials} ({100 * self.low:.2f} to {100 * self.high:.2f} %)"


def rate_estimate(hits: int, trials: int, confidence: float = 0.99) -> Rate:
    if not trials:
        return Rate(0, 0, 0.0, 1.0)
    interval = binomtest(hits, trials).proportion_ci(confidence, method="exact")
    return Rate(hits, trials, float(interval.low), float(interval.high))


def chance_of_so_many(hits: int, trials: int, chance: float) -> float:
    """The chance of at least so many HITS if each trial is one with CHANCE."""
    return float(binomtest(hits, trials, chance, alternative="greater").pvalue)
