"""The figures that the project starts from: published results of an earlier allocator of this design, each as a share of
glibc on the same machine, beside the same share here. Absolute speeds of two machines say nothing of each other."""

from __future__ import annotations

from dataclasses import dataclass

from hakmem_lab.reports.report import Grid, ratio_text
from hakmem_lab.studies.judging import Matrix


@dataclass(frozen=True)
class Then:
    what: str
    earlier_mops: float
    system_mops: float | None
    """glibc's, where it was published."""
    row: str
    """The workload here."""
    remark: str = ""


STARTING_FIGURES = (
    Then("random_mixed 128 B", 59, 69, "one size, 128 B"),
    Then("random_mixed 256 B", 70, 76, "one size, 256 B"),
    Then("random_mixed 512 B", 68, 80, "one size, 512 B"),
    Then("random_mixed 1024 B", 65, 45, "one size, 1024 B"),
    Then("random_mixed 16-1024 B, 256 slots", 54, None, "random mix, 256 slots"),
    Then("random_mixed 16-1024 B, 400 slots", 34, None, "random mix, 400 slots"),
    Then("mid_mt_gap 1-8 KiB", 41, None, "2 threads, 1-8 KiB"),
    Then("mid_large_mt 8-32 KiB", 2.1, 8.7, "2 threads, 8-32 KiB"),
    Then("larson, 1 thread, 8-128 B", 2.7, None, "larson, 1 thread, 8-128 B", "crashed at 4 threads"),
    Then("tiny_hot 16 B", 120, 104, "tiny and hot, 16 B", "the lowest of 120 to 164"),
    Then("tiny_hot 128 B", 120, 104, "tiny and hot, 128 B", "the lowest of 120 to 164"),
    Then("fixed 256 B", 54.4, 102.1, "one size, 256 B"),
)


def then_grid(matrix: Matrix) -> Grid:
    """Those of which this run measured the workload."""
    return Grid(
        "The figures it starts from, then and now, each as a share of glibc",
        (
            "then",
            "earlier Mop/s",
            "glibc Mop/s",
            "share then",
            "here",
            "hakmem Mop/s",
            "glibc Mop/s",
            "share now",
        ),
        tuple(row for then in STARTING_FIGURES if (row := _then_row(matrix, then))),
    )


def _then_row(matrix: Matrix, then: Then) -> tuple[str, ...] | None:
    result = matrix.result(then.row, "glibc")
    if result is None or result.estimate is None:
        return None
    system = then.system_mops
    now = (matrix.medians[then.row, arm] / 1e6 for arm in (matrix.plan.subject, "glibc"))
    return (
        f"{then.what} ({then.remark})" if then.remark else then.what,
        f"{then.earlier_mops:g}",
        f"{system:g}" if system else "not published",
        f"{then.earlier_mops / system:.2f}" if system else "",
        then.row,
        *(f"{speed:.1f}" for speed in now),
        ratio_text(result.estimate),
    )
