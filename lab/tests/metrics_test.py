"""The numbers from outside and from inside are the same ones: held against the library's own table, and the schema."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hakmem_lab.sight import books, options
from hakmem_lab.sight.metrics import (
    CLASS_METRICS,
    METRICS,
    Usage,
    _failure_content,
    _usage_read,
    printable,
)
from hakmem_lab.sight.process import Process

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r'X\((\w+), (\w+), (GAUGE|COUNTER), [^"]*"([^"]*)"\)')
CLASS_ROW = re.compile(r'X\((\w+), (GAUGE|COUNTER), class->\w+, "([^"]*)"\)')


def header() -> str:
    return (ROOT / "src/watch/metrics.h").read_text().replace("\\\n", " ")


def test_the_numbers_are_the_librarys() -> None:
    table = header().partition("#define METRICS(X)")[2].partition("#define CLASS_METRICS")[0]
    rows = [(section, name, kind.lower(), text) for section, name, kind, text in ROW.findall(table)]
    assert len(rows) == table.count("X(")
    assert [(one.section, one.name, str(one.kind), one.text) for one in METRICS] == rows


def test_the_numbers_of_classes_are_the_librarys() -> None:
    table = header().partition("#define CLASS_METRICS(X)")[2]
    rows = [(name, kind.lower(), text) for name, kind, text in CLASS_ROW.findall(table)]
    assert [(one.name, str(one.kind), one.text) for one in CLASS_METRICS] == rows


def enumerators(file: str, pattern: str) -> list[str]:
    return re.findall(pattern, (ROOT / file).read_text())


def test_words_that_stand_for_numbers_are_the_librarys() -> None:
    assert list(books.CAUSES) == enumerators("src/watch/failures.h", r'X\(FAILURE_\w+, "(\w+)"')
    pressures = enumerators("src/ace/pressure.h", r"(?m)^ +ACE_PRESSURE_(\w+)")
    assert [name.lower() for name in pressures] == ["none", *books.PRESSURES]
    sources = re.findall(
        r'"(\w+)"', (ROOT / "src/api/options.c").read_text().partition("option_source_name")[2]
    )
    assert tuple(sources[: len(options.SOURCES)]) == options.SOURCES


def test_kinds_of_options_are_numbered_as_the_librarys() -> None:
    text = (ROOT / "src/api/options.h").read_text()
    listed = re.findall(r"OPTION_TYPE_(\w+)", text.partition("enum option_type {")[2].partition("}")[0])
    assert listed == [kind.name for kind in options.Kind]


@pytest.mark.parametrize(("limit", "shown"), [(1 << 40, 1 << 40), (books.NEVER, None)])
def test_no_limit_is_none(limit: int, shown: int | None) -> None:
    failure = books.Failure(
        number=1,
        cause="map_failure",
        size=1 << 62,
        alignment=16,
        limit_bytes=limit,
        in_use_bytes=0,
        thread_id=1,
        time_ms=1,
        block_bytes=None,
        call="mmap",
        error="ENOMEM",
    )
    assert _failure_content(failure)["limit_bytes"] == shown


# ---- the schema, the document ---------------------------------------------------------------------------------


def test_the_schema_has_every_number_and_no_other() -> None:
    schema = json.loads((ROOT / "docs/statistics.schema.json").read_text())
    sections = dict.fromkeys(metric.section for metric in METRICS)
    for section in sections:
        names = [metric.name for metric in METRICS if metric.section == section]
        part = schema["properties"][section]
        assert list(part["properties"]) == part["required"] == names, section
        assert part["additionalProperties"] is False
    row = schema["properties"]["classes"]["items"]
    assert list(row["properties"]) == row["required"] == ["block_bytes", *(one.name for one in CLASS_METRICS)]


def test_the_document_has_every_number() -> None:
    text = (ROOT / "docs/statistics.md").read_text()
    for metric in METRICS:
        assert f"| `{metric.section}` `{metric.name}` |" in text
    for one in CLASS_METRICS:
        assert f"| `{one.name}` |" in text


def test_what_the_kernel_says_is_read_from_its_places(tmp_path: Path) -> None:
    """Faults by the process itself, and not by its children; with input or output, and without."""
    folder = tmp_path / "7"
    folder.mkdir()
    fields = "S 1 7 7 0 -1 4194304 1234 56 78 9 10 11 0 0 20 0 1 0 4321"
    (folder / "stat").write_text(f"7 (a) b) {fields}\n")
    (folder / "status").write_text("Name:\ta) b\nVmHWM:\t 30 kB\nVmRSS:\t 20 kB\n")
    (folder / "maps").write_text("1-2 rw-p\n3-4 rw-p\n")
    usage = Usage(rss_bytes=20 << 10, peak_rss_bytes=30 << 10, minor_faults=1234, major_faults=78, mappings=2)
    assert _usage_read(Process(7, tmp_path)) == usage


@pytest.mark.parametrize(("text", "shown"), [("redis", "redis"), ("caf\u00e9\n", "caf??"), ('a"b', 'a"b')])
def test_what_is_not_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
