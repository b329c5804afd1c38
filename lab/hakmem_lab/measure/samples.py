"""Raw samples as CSV: one row for each run, written as soon as its pair is complete, so that an interrupted run
loses nothing."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING, NAMES_AS_THEY_ARE
from hakmem_lab.measure.pairs import Pair
from hakmem_lab.measure.runner import Arm, Measured

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
    "touch_us",
    "in_turns",
    "disturbed",
    "checksum",
)


class RowWriter:
    """Opens its file with the first row, so that a study that never began leaves nothing behind."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self._columns = columns
        self._file: TextIO | None = None

    def close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
            else:
                with suppress(OSError):  # it was never made, or holds something of others
                    self.path.parent.rmdir()
        except OSError as error:  # what a full disk did not take is tried once more here
            raise self._complaint(error) from error

    def write(self, row: Sequence[object]) -> None:
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("w", encoding=ENCODING, errors=NAMES_AS_THEY_ARE, newline="")
                csv.writer(self._file, lineterminator="\n").writerow(self._columns)
            csv.writer(self._file, lineterminator="\n").writerow(row)
            self._file.flush()
        except OSError as error:
            raise self._complaint(error) from error

    def _complaint(self, error: OSError) -> LabError:
        return LabError(f"cannot write {self.path.name}: {error.strerror}")


class SampleWriter(RowWriter):
    """Writes the samples of pairs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, COLUMNS)

    def keep(self, cell: str, pair: Pair) -> None:
        comparison = pair.comparison
        self._row(cell, pair, comparison.subject, pair.subject, pair.subject_first)
        self._row(cell, pair, comparison.other, pair.other, not pair.subject_first)

    def _row(self, cell: str, pair: Pair, arm: Arm, run: Measured, first: bool) -> None:
        conditions = pair.conditions
        self.write(
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
                "" if run.touch_us is None else f"{run.touch_us:.3f}",
                int(run.in_turns),
                pair.disturbed,
                run.checksum or "",
            )
        )


@contextmanager
def sample_writer(path: Path) -> Iterator[SampleWriter]:
    writer = SampleWriter(path)
    try:
        yield writer
    finally:
        writer.close()
