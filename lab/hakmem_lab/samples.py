"""Raw samples as CSV: one row for each run, written as soon as its pair is complete, so that an interrupted
run loses nothing."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hakmem_lab.errors import LabError
from hakmem_lab.pairs import Pair
from hakmem_lab.runner import Arm, Measured

COLUMNS = (
    "cell",
    "against",
    "pair",
    "first",
    "arm",
    "version",
    "identity",
    "seed",
    "padding",
    "cpus",
    "ops",
    "seconds",
    "wall_seconds",
    "cpu_seconds",
    "peak_rss_kib",
    "minor_faults",
    "major_faults",
    "involuntary_switches",
    "steal_ticks",
    "disturbed",
    "checksum",
)


class SampleWriter:
    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._files = [path.open("w", newline="") for path in paths]
        self._writers = [csv.writer(file, lineterminator="\n") for file in self._files]
        self._write(COLUMNS)

    def close(self) -> None:
        for file in self._files:
            file.close()

    def keep(self, cell: str, pair: Pair) -> None:
        comparison = pair.comparison
        self._row(cell, pair, comparison.subject, pair.subject, pair.subject_first)
        self._row(cell, pair, comparison.other, pair.other, not pair.subject_first)

    def _row(self, cell: str, pair: Pair, arm: Arm, run: Measured, first: bool) -> None:
        conditions = pair.conditions
        self._write(
            (
                cell,
                pair.comparison.name,
                pair.number,
                int(first),
                arm.name,
                arm.peer.version,
                arm.peer.identity,
                conditions.seed,
                conditions.padding,
                " ".join(map(str, conditions.cpus)),
                run.ops,
                f"{run.seconds:.9f}",
                f"{run.wall_seconds:.6f}",
                f"{run.cpu_seconds:.9f}",
                "" if run.peak_rss_kib is None else run.peak_rss_kib,
                run.minor_faults,
                run.major_faults,
                run.involuntary_switches,
                run.steal_ticks,
                pair.disturbed,
                run.checksum or "",
            )
        )

    def _write(self, row: Sequence[object]) -> None:
        for path, file, writer in zip(self._paths, self._files, self._writers, strict=True):
            try:
                writer.writerow(row)
                file.flush()
            except OSError as error:
                raise LabError(f"cannot write {path.name}: {error.strerror}") from error


@contextmanager
def sample_writer(paths: list[Path]) -> Iterator[SampleWriter]:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    writer = SampleWriter(paths)
    try:
        yield writer
    finally:
        writer.close()
