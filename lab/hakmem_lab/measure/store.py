"""Raw samples that outlive the run: one row for each process, with everything that is needed to judge it.

A round is appended to a journal and is on disk before the next begins; a finished task's journal becomes a Parquet
file, a part. So whatever ends a run, no measurement is lost, and all runs together are one table that DuckDB reads:
'bench_results/bench/*/raw/*.parquet'.

A round that was cut off is measured again: of rows with the same key the last is kept. The parts have no key twice; what
the journal replaces is taken out of them before it becomes a part itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import duckdb

from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING
from hakmem_lab.measure.provenance import Provenance

TIMED = "timed"
OBSERVED = "observed"
"""Runs with instruments, outside the timed rounds."""
TAIL = "tail"
"""The same with a clock around every operation and nothing else, in rounds of their own."""


@dataclass(frozen=True)
class Sample:
    """One process."""

    kind: str
    task: str
    slot: int
    attempt: int
    position: int
    """Its place in the order of its round."""
    runs: int
    """The number of runs in its round; a round that was cut off has fewer rows."""
    arm: str
    allocator: str
    version: str
    identity: str
    slowdown_percent: float
    count: int
    seed: int
    padding: int
    cpus: str
    outcome: str = ""
    """Empty if it went well; otherwise what happened, without figures."""
    disturbed: str = ""
    again: bool = False
    """Its round was disturbed enough to be measured again."""
    ops: int | None = None
    seconds: float | None = None
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_rss_kib: int | None = None
    rss_mean_kib: float | None = None
    tree_peak_rss_kib: float | None = None
    idle_rss_kib: float | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    involuntary_switches: int | None = None
    steal_ticks: int | None = None
    system_calls: int | None = None
    touch_us: float | None = None
    in_turns: bool | None = None
    latency_p50_ns: float | None = None
    latency_p99_ns: float | None = None
    latency_p999_ns: float | None = None
    latency_max_ns: float | None = None
    figure: float | None = None
    """The figure that its workload is about."""
    checksum: str | None = None
    rss_trace: tuple[tuple[float, int], ...] = ()
    """Seconds since the start, KiB."""

    @property
    def key(self) -> tuple[str, str, int, int, str]:
        return (self.kind, self.task, self.slot, self.attempt, self.arm)


KEY = "kind, task, slot, attempt, arm"
"""Sample.key, for SQL."""
SQL_TYPES = {"str": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN"}


def _sql_type(annotation: str) -> str:
    if annotation.startswith("tuple"):
        return "DOUBLE[][]"
    return SQL_TYPES[annotation.removesuffix(" | None")]


SAMPLE_TYPES = {field.name: _sql_type(str(field.type)) for field in fields(Sample)}


def provenance_columns(run: str, source: Provenance) -> dict[str, str | int]:
    """The provenance that every row carries."""
    return {
        "run": run,
        "date": source.date,
        "command": source.command,
        "commit": source.commit,
        "build_id": source.build_id,
        "compiler": source.compiler,
        "workload_compiler": source.workload_compiler,
        "kernel": source.kernel,
        "cpu": source.cpu,
        "processors": source.processors,
        "thp": source.thp,
        "libc": source.libc,
    }


def disk_sync(path: Path) -> None:
    """Returns when the file, or the names in the folder, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class SampleStore:
    """The raw/ folder of one run."""

    def __init__(self, folder: Path, provenance: Mapping[str, str | int]) -> None:
        self.folder = folder
        self._provenance = dict(provenance)
        self._journal = folder / "journal.jsonl"

    def append(self, samples: Iterable[Sample]) -> None:
        """On disk when this returns."""
        lines = "".join(json.dumps(vars(one) | self._provenance) + "\n" for one in samples)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._journal.open("a", encoding=ENCODING) as file:
                file.write(lines)
            disk_sync(self._journal)
            disk_sync(self.folder)
        except OSError as error:
            raise LabError(f"cannot write samples: {error.strerror}; those before are kept") from error

    def compact(self) -> None:
        """Turns the journal into one more part."""
        if not self._journal.exists():
            return
        journal = self._journal_rows()
        try:
            for part in self._parts_replaced():
                _write(f"SELECT * FROM {_parts_rows([part])} ANTI JOIN {journal} USING ({KEY})", part)
            number = max((int(part.stem) for part in self._parts()), default=0) + 1
            _write(f"SELECT * FROM {journal}", self.folder / f"{number:04d}.parquet")
            self._journal.unlink()
        except (OSError, duckdb.Error) as error:
            raise LabError(f"cannot write a part: {error}; the journal keeps its rows") from error

    def load(self) -> list[Sample]:
        """What is kept, in the order in which it was written."""
        kept = self._kept_rows()
        if not kept:
            return []
        try:
            with _database() as database:
                there = {name for name, *_ in database.execute(f"DESCRIBE SELECT * FROM {kept}").fetchall()}
                # A run that began before a figure was kept has it nowhere.
                names = [name for name in SAMPLE_TYPES if name in there]
                columns = ", ".join(f'"{name}"' for name in names)
                rows = database.execute(f"SELECT {columns} FROM {kept} ORDER BY place").fetchall()
        except duckdb.Error as error:
            raise LabError(f"the samples cannot be read: {error}") from error
        return [_sample_of(dict(zip(names, row, strict=True))) for row in rows]

    def export(self, path: Path) -> bool:
        """Writes what is kept to one small file; false, and no file, if that is nothing."""
        if not self.load():
            return False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            order = "kind, task, slot, attempt, position"
            _write(f"SELECT * EXCLUDE (place) FROM {self._kept_rows()} ORDER BY {order}", path)
        except (OSError, duckdb.Error) as error:
            raise LabError(f"cannot write {path}: {error}") from error
        return True

    def _kept_rows(self) -> str:
        """PLACE says in which order they were written; empty if there is nothing to read."""
        sources, parts = [], self._parts()
        if parts:
            sources.append(f"SELECT * FROM {_parts_rows(parts)}")
        if self._journal.exists() and self._journal.stat().st_size:
            sources.append(f"SELECT * FROM {self._journal_rows()}")
        if not sources:
            return ""
        placed = f"SELECT *, row_number() OVER () AS place FROM ({' UNION ALL BY NAME '.join(sources)})"
        last = f"row_number() OVER (PARTITION BY {KEY} ORDER BY place DESC) = 1"
        return f"(SELECT * FROM ({placed}) QUALIFY {last})"

    def _journal_rows(self) -> str:
        """A row that was cut off by the end of a process has no key and is left out."""
        types = SAMPLE_TYPES | {
            name: "BIGINT" if isinstance(value, int) else "VARCHAR"
            for name, value in self._provenance.items()
        }
        columns = ", ".join(f"\"{name}\": '{kind}'" for name, kind in types.items())
        return (
            f"(SELECT * FROM read_json({_quoted(self._journal)}, format = 'newline_delimited',"
            f" ignore_errors = true, columns = {{{columns}}}) WHERE task IS NOT NULL)"
        )

    def _parts(self) -> list[Path]:
        """In the order in which they were written."""
        return sorted(self.folder.glob("*.parquet"), key=lambda part: int(part.stem))

    def _parts_replaced(self) -> list[Path]:
        """Those with keys that the journal has, too."""
        parts = self._parts()
        if not parts:
            return []
        rows = _parts_rows(parts, filename=True)
        query = f"SELECT DISTINCT filename FROM {rows} SEMI JOIN {self._journal_rows()} USING ({KEY})"
        with _database() as database:
            return [Path(name) for (name,) in database.execute(query).fetchall()]


def _sample_of(values: dict[str, Any]) -> Sample:
    trace = tuple((at, int(kib)) for at, kib in values["rss_trace"] or ())
    return Sample(**values | {"rss_trace": trace})


def _database() -> duckdb.DuckDBPyConnection:
    """One thread reads rows in the order in which they were written."""
    return duckdb.connect(config={"threads": 1})


def _write(query: str, path: Path) -> None:
    """The rows of QUERY are on disk, as a whole, when this returns."""
    scratch = path.with_suffix(".tmp")
    try:
        with _database() as database:
            database.execute(f"COPY ({query}) TO {_quoted(scratch)} (FORMAT parquet, COMPRESSION zstd)")
        disk_sync(scratch)
        scratch.rename(path)
        disk_sync(path.parent)
    finally:
        scratch.unlink(missing_ok=True)


def _parts_rows(parts: Iterable[Path], filename: bool = False) -> str:
    """With a column FILENAME if that is true."""
    files = ", ".join(map(_quoted, parts))
    return f"read_parquet([{files}], union_by_name = true, filename = {str(filename).lower()})"


def _quoted(path: Path) -> str:
    text = str(path).replace("'", "''")
    return f"'{text}'"
