"""Which rounds a mean is of, where only the best peer stays after those that select."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import pytest
from hakmem_lab.statistics.estimate import Verdict
from hakmem_lab.studies.comparing import ArmSamples, compare
from hakmem_lab.studies.judging import judge
from hakmem_lab.studies.suites import group_means
from lab_matrix import FEW, SETTINGS, of_task, plan_make, row_make, samples_make, staged


def test_how_many_rounds_each_has_where_only_the_best_stays() -> None:
    samples = staged(FEW, samples_make(FEW, glibc=2.0, mimalloc3=1.1, jemalloc=1.3))
    matrix = judge(plan_make(FEW), samples)
    found = {one.against: one for one in matrix.results}
    assert {name: len(one.log_ratios) for name, one in found.items()} == {
        "glibc": 8,
        "mimalloc3": 8,
        "jemalloc": 2,
    }
    jemalloc = found["jemalloc"].estimate
    assert jemalloc is not None
    assert 0 < jemalloc.low < 1.3 < jemalloc.high < math.inf
    without = replace(FEW, rounds=replace(FEW.rounds, named=()))
    glibc = judge(plan_make(without), staged(without, samples)).result("cell", "glibc")
    assert glibc is not None and glibc.estimate is not None
    assert (glibc.verdict, glibc.estimate.high) == (Verdict.UNCLEAR, math.inf)


def test_means_are_of_the_rounds_before_anybody_was_selected() -> None:
    """Else who looked slow there by chance would be shown so, and who looked fast as it is."""
    rows = [replace(FEW, name=name) for name in ("one", "two")]
    lucky = [one for row in rows for one in samples_make(row, glibc=2.0, mimalloc3=0.9, jemalloc=1.0)]
    later = [one for row in rows for one in samples_make(row, glibc=2.0, mimalloc3=1.5, jemalloc=1.0)]
    samples = [a if a.slot < 2 else b for a, b in zip(lucky, later, strict=True)]
    matrix = judge(plan_make(*rows), [one for row in rows for one in staged(row, of_task(samples, row))])
    means = {one.peer: one.estimate.ratio for one in group_means(matrix) if one.group == "all"}
    assert means["mimalloc3"] == pytest.approx(0.9, rel=0.01)
    result = matrix.result("one", "mimalloc3")
    assert result is not None and result.estimate is not None
    assert result.estimate.ratio == pytest.approx(1.5, rel=0.01)


def test_who_looked_near_by_luck_does_not_move_a_mean() -> None:
    """Two peers are near the fastest in half of all first rounds. In a mean with the others their luck would fade, and
    the bad luck of those that left would stay."""
    row = row_make("cell", rounds=4)
    row = replace(row, rounds=replace(row.rounds, selection=4))
    logs = []
    for number in range(1000):
        one = replace(row, name=f"cell {number}")
        samples = staged(one, samples_make(one, noise=0.17, glibc=1.0, mimalloc3=1.42, jemalloc=1.42))
        arms = ArmSamples(one, samples)
        results = [compare(SETTINGS, one, arms, "hakmem", peer) for peer in ("mimalloc3", "jemalloc")]
        logs += [fmean(result.unselected) for result in results]
    assert math.exp(fmean(logs)) == pytest.approx(1.42, rel=0.02)


def test_who_was_near_before_has_all_rounds_that_select_in_its_mean() -> None:
    samples = staged(FEW, samples_make(FEW, glibc=2.0, mimalloc3=1.1, jemalloc=1.3))
    results = judge(plan_make(FEW), samples).results
    assert {one.against: len(one.unselected) for one in results} == {
        "glibc": 2,
        "mimalloc3": 1,
        "jemalloc": 2,
    }
