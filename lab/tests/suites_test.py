"""Geometric means over workloads, of made-up matrices."""

from __future__ import annotations

import pytest
from hakmem_lab.studies.judging import judge
from hakmem_lab.studies.matrix import SAME
from hakmem_lab.studies.suites import group_means
from lab_matrix import PEERS, plan_make, row_make, samples_make


def test_workloads_about_memory_have_no_outcome_and_are_in_no_mean() -> None:
    rows = [row_make("one"), row_make("two"), row_make("rest", memory=True)]
    samples = [one for row in rows for one in samples_make(row, glibc=9.0 if row.memory else 2.0)]
    matrix = judge(plan_make(*rows), samples)
    assert {cell.row.name for cell in matrix.cells} == {"one", "two"}
    (mean,) = [one for one in group_means(matrix) if (one.group, one.peer) == ("all", "glibc")]
    assert mean.estimate.ratio == pytest.approx(2.0, rel=0.01)


def test_means_are_geometric_and_leave_the_control_out() -> None:
    rows = [row_make("one"), row_make("two", group="large"), row_make("still", control=True)]
    ratios = {"one": 1.0, "two": 4.0, "still": 1.0}
    samples = [
        one for row in rows for one in samples_make(row, glibc=ratios[row.name], mimalloc3=1, jemalloc=1)
    ]
    means = {
        (one.group, one.peer): one.estimate.ratio for one in group_means(judge(plan_make(*rows), samples))
    }
    assert means["all", "glibc"] == pytest.approx(2.0, rel=0.01)
    assert set(means) == {("all", peer) for peer in PEERS}


def test_what_is_void_is_in_no_mean() -> None:
    rows = [row_make(name) for name in ("one", "two", "void")]
    samples = [one for row in rows[:2] for one in samples_make(row, glibc=2.0)]
    samples += samples_make(rows[2], **{SAME: 1.1, "glibc": 9.0})
    (mean,) = [one for one in group_means(judge(plan_make(*rows), samples)) if one.peer == "glibc"]
    assert mean.estimate.ratio == pytest.approx(2.0, rel=0.01)
