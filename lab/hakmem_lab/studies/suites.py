"""Geometric means over workloads, with intervals, for all of them and for each group; never points."""

from __future__ import annotations

from dataclasses import dataclass

from hakmem_lab.statistics.estimate import Estimate, Verdict, suite_estimate
from hakmem_lab.studies.judging import Matrix

ALL = "all"


@dataclass(frozen=True)
class GroupMean:
    group: str
    peer: str
    estimate: Estimate
    workloads: int


def group_means(matrix: Matrix) -> list[GroupMean]:
    """Means over workloads that are not void. Groups with one or two workloads have none: its interval would be too
    wide to say anything."""
    settings = matrix.plan.settings
    rows = [row for row in matrix.plan.rows if not row.control and not row.memory]
    groups = [ALL, *dict.fromkeys(row.group for row in rows)]
    means = []
    for peer in matrix.plan.peers:
        own = [
            one
            for one in matrix.results
            if one.against == peer and one.row in rows and one.estimate and one.verdict is not Verdict.VOID
        ]
        for group in groups:
            cells = [one.unselected for one in own if one.unselected and group in (ALL, one.row.group)]
            if len(cells) > (1 if group == ALL else 2):
                means.append(GroupMean(group, peer, suite_estimate(cells, settings.confidence), len(cells)))
    return sorted(means, key=lambda one: groups.index(one.group))
