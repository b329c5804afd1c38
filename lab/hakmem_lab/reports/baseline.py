"""The gate of a baseline, as a table and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from hakmem_lab.grid import Grid
from hakmem_lab.studies.baseline import Gate, Loss

FUNCTIONS_MAX = 8


def gates_grid(found: Sequence[Gate]) -> Grid:
    ordered = sorted(found, key=lambda gate: gate.state != "missed")
    return Grid(
        "Against the baseline, lost first",
        ("workload", "figure", "state", "baseline", "now", "change", "tolerance"),
        tuple(_row(gate) for gate in ordered),
        text_columns=3,
    )


def _row(gate: Gate) -> tuple[str, ...]:
    digits = 2 if gate.what == "instructions" else 0
    change = 100 * (gate.now / gate.before - 1) if gate.before else 0.0
    return (
        gate.row,
        f"{gate.what} for one operation" if digits else gate.what,
        gate.state,
        f"{gate.before:.{digits}f}",
        f"{gate.now:.{digits}f}",
        f"{change:+.1f} %" if gate.before else "",
        f"{gate.tolerance:.{digits}f}",
    )


def loss_lines(lost: Sequence[Loss]) -> list[str]:
    lines = []
    for loss in lost:
        lines += [f"{loss.row}: {entry}" for entry in loss.entries]
        lines += [f"{loss.row}: in {function}" for function in loss.functions[:FUNCTIONS_MAX]]
        if not (loss.entries or loss.functions):
            lines.append(f"{loss.row}: no entry point takes more instructions")
    return lines
