"""What `honesty` prints and reports."""

from __future__ import annotations

from collections.abc import Sequence

from hakmem_lab.grid import Grid
from hakmem_lab.statistics.rates import rate_estimate
from hakmem_lab.studies.ab import Design
from hakmem_lab.studies.checks import Check
from hakmem_lab.studies.honesty import FALSE_WINS_PER_1000, NAIVE, Simulated
from hakmem_lab.studies.honesty_live import Lived, live_rates
from hakmem_lab.studies.noise import Noise

WORDS = ("better", "worse", "equivalent", "inconclusive")


def simulated_checks(simulated: Sequence[Simulated]) -> list[Check]:
    """Wrong verdicts of either kind occur at most at ALPHA's rate; if nothing differs, false wins alone occur less
    often."""
    checks = []
    for one in simulated:
        where = f"{one.condition}, {one.budget_seconds:g} s, {one.truth.name}"
        if one.truth.right == "equivalent":
            most = max(1, FALSE_WINS_PER_1000 * one.trials // 1000)
            checks.append(Check.at_most(f"{where}: false wins in {one.trials}", one.words["better"], most))
        wrong = f"{where}: wrong verdicts in {one.trials}"
        checks.append(Check.at_most(wrong, one.wrong, max(1, one.trials // 100)))
    return checks


def simulated_grid(simulated: Sequence[Simulated]) -> Grid:
    rows = tuple(
        (
            one.condition,
            f"{one.budget_seconds:g} s",
            one.truth.name,
            rate_estimate(one.wrong, one.trials).text,
            *(str(one.words[word]) for word in WORDS),
            str(one.void),
            f"{one.pairs_median:g}",
        )
        for one in simulated
    )
    columns = ("noise", "budget", "truth", "wrong (99 %)", *WORDS, "of these void", "pairs (median)")
    return Grid("Simulated: ab over recorded noise", columns, rows, text_columns=3)


def naive_grid(simulated: Sequence[Simulated]) -> Grid:
    rows = tuple(
        (
            one.condition,
            f"{one.budget_seconds:g} s",
            one.truth.name,
            *(rate_estimate(one.naive[name], one.trials).text for name in NAIVE),
        )
        for one in simulated
    )
    columns = ("noise", "budget", "truth", *NAIVE)
    return Grid("The naive design calls a difference: all of A, then all of B", columns, rows, text_columns=3)


def live_grid(lived: Sequence[Lived], asked: int) -> Grid:
    rows = tuple((one.truth, one.what, one.rate.text) for one in live_rates(lived)) if asked else ()
    return Grid("Live: ab on this machine", ("truth", "what", "of (99 %)"), rows, text_columns=2)


def reading_lines(noise: Noise, design: Design) -> list[str]:
    percent = 100 * design.margin
    recorded = noise.provenance
    loads = ", ".join(f"{trace.load:g}" for trace in noise.traces)
    return [
        f"Every live comparison has a budget of {design.budget_seconds:g} s, a margin of {percent:g} % and"
        f" an alpha of {100 * design.alpha:g} %, its own A/A and slowed control, and goes through the same"
        " code as `./hakmem ab`. *Wrong* is better or worse where nothing differs or the difference is the margin"
        " itself, and better or equivalent where B is slowed by twice the margin. Intervals are Clopper and"
        " Pearson's.",
        f"The noise was recorded on {recorded['date']} by {recorded['command']}: {recorded['processor']},"
        f" {recorded['kernel']}; load of the machine before each condition: {loads}. A simulation plays back"
        " blocks of consecutive runs; only how long the arms take is made up.",
        "The naive designs have the same noise and the whole budget: half of it for runs of A, then half for runs of B.",
        "A void run, whose A/A control came out as different, is inconclusive. Live, every comparison is kept;"
        " an interrupted session is taken up by `--resume`.",
    ]
