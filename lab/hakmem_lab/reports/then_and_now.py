"""The figures that the project starts from, each as a share of glibc on the same machine, beside the same share
here. Absolute speeds of two machines cannot be compared."""

from __future__ import annotations

from hakmem_lab.grid import Grid
from hakmem_lab.reports.report import ratio_text
from hakmem_lab.studies.judging import Matrix
from hakmem_lab.studies.starting_figures import STARTING_FIGURES, Then


def then_grid(matrix: Matrix) -> Grid:
    """The figures whose workload this run measured."""
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
