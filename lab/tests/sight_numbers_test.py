"""The same numbers from inside and outside, by the readers that users have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from hakmem_lab.checkout import Checkout
from hakmem_lab.sight.launch import environment_on
from hakmem_lab.sight.metrics import numbers_read, report_content, report_openmetrics
from hakmem_lab.sight.process import process_open
from jsonschema import Draft202012Validator
from lab_processes import (
    FRAGMENTED,
    FREED,
    MIB,
    ROOT,
    books_of,
    on_hakmem,
)
from prometheus_client.openmetrics.parser import text_string_to_metric_families

SAYS = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
malloc = libc.malloc
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
kept = [malloc(size) for size in range(16, 60000, 61)]
kept += [libc.aligned_alloc(alignment, size) for alignment, size in ((512, 512), (512, 4608), (4096, 16384))]
large = [malloc(5 << 20), malloc(70 << 20)]  # in the window, and larger than it
for _ in range(9):  # until they are kept
    for block in [malloc(300000), malloc(300000)]:
        libc.free(ctypes.c_void_p(block))
failed = malloc((1 << 63) + 1)
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print('ready', flush=True)
assert sys.stdin.readline()
libc.hak_stats_write(out, 1)
os.close(out)
os.kill(os.getpid(), 19)
"""


def test_inside_and_outside_say_the_same(checkout: Checkout, tmp_path: Path) -> None:
    """The process writes its own report and stops; then it is read."""
    file = tmp_path / "report.json"
    environment = environment_on(checkout, PYTHONMALLOC="malloc", HAKMEM_DECAY="3s", HAKMEM_WINDOW="64M")
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", SAYS, str(file)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(b"\n")
        process.stdin.flush()
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        (now,) = numbers_read(process_open(process.pid))
    finally:
        process.kill()
        process.communicate()
    inside, outside = json.loads(file.read_text()), report_content(now)
    Draft202012Validator(json.loads((ROOT / "docs/statistics.schema.json").read_text())).validate(outside)
    assert list(outside) == list(inside)
    assert inside["memory"]["large_bytes"] >= 75 * MIB
    # Two blocks of five pages, which the thread keeps: none at first, one, then both. They are in use by nobody.
    for name in ("large_bytes", "large_blocks"):
        assert inside["memory"][name] == outside["memory"][name]
    assert all(part["heaps"]["cached_bytes_most"] >= 10 * 65536 for part in (inside, outside))
    medium = [one for one in inside["decisions"]["last"] if one.get("block_bytes") == 5 * 65536]
    assert [(one["kind"], one["reason"], one["from"], one["to"]) for one in medium] == [
        ("depth", "swing", 0, 1),
        ("depth", "swing", 1, 2),
    ]
    (row,) = (one for one in inside["classes"] if one["block_bytes"] == 5 * 65536)
    assert (row["cached_blocks"], row["live_blocks"], row["slabs"]) == (2, 0, 2)
    for size, slack in (
        (512, 255),
        (6144, 2047),
        (16384, 4095),
    ):  # of blocks for an alignment, which come first
        for part in (inside, outside):
            (row,) = (one for one in part["classes"] if one["block_bytes"] == size)
            assert (row["live_blocks"], row["slack_bytes_most"]) == (1, slack), size
    assert inside["process"]["minor_faults"] > 500 + inside["process"]["major_faults"]
    # A few small blocks come and go between the report and the stop.
    for name in ("process", "classes", "memory", "heaps", "threads", "system_calls", "kernel"):
        assert differences(name, inside.pop(name), outside.pop(name)) == []
    assert outside == inside
    families = list(text_string_to_metric_families(report_openmetrics(now)))
    samples = {
        sample.name: sample.value for family in families for sample in family.samples if not sample.labels
    }
    assert samples["hakmem_memory_large_bytes"] >= 5 * MIB
    assert samples["hakmem_spans_taken_total"] == now.books.spans["taken"]


EXACT = ("block_bytes", "thread_id")
NEAR_BYTES, NEAR_COUNT, NEAR_SHARE = 256 << 10, 20, 0.02


def differences(name: str, one: object, other: object) -> list[str]:
    """What is no number, or one that names something, and not the same; and numbers that are not near. NAME: of both."""
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        return [text for key in one for text in differences(f"{name} {key}", one[key], other[key])]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [text for place, both in pairs for text in differences(f"{name} {place}", *both)]
    same = one == other
    if isinstance(one, int) and isinstance(other, int) and not name.endswith(EXACT):
        same = abs(one - other) <= max(NEAR_SHARE * one, NEAR_BYTES if "bytes" in name else NEAR_COUNT)
    return [] if same else [f"{name}: {one}, {other}"]


def test_numbers_that_differ_are_seen() -> None:
    assert differences("a", {"b": [3, "x"], "block_bytes": 16}, {"b": [5, "x"], "block_bytes": 16}) == []
    assert differences("a", {"b": 3}, {"c": 3}) == ["a: {'b': 3}, {'c': 3}"]
    assert differences("a", [{"count": 3}], [{"count": 2000}]) == ["a 0 count: 3, 2000"]
    assert differences("a", {"held_bytes": 0}, {"held_bytes": 9 << 20}) == ["a held_bytes: 0, 9437184"]
    assert differences("a", {"block_bytes": 16}, {"block_bytes": 32}) == ["a block_bytes: 16, 32"]


def test_options_are_formatted_as_the_library_does(checkout: Checkout, tmp_path: Path) -> None:
    options = {
        "decay": "90s",
        "thread_cache": "96k",
        "huge_pages": "never",
        "bin_depth": "32",
        "stats_file": "/tmp/%p",
    }
    with on_hakmem(checkout, tmp_path, FREED, **options) as pid:
        books = books_of(pid)
    values = {option.name: (option.value, option.source) for option in books.options}
    assert values["decay"] == ("90s", "environment")
    assert values["thread_cache"] == ("96KiB", "environment")
    assert values["huge_pages"] == ("never", "environment")
    assert values["bin_depth"] == ("32", "environment")
    assert values["stats_file"] == ("/tmp/%p", "environment")
    assert values["profile"] == ("balanced", "default")
    assert books.option("window").decided == "1TiB"


def test_the_reader_of_the_document_reads(checkout: Checkout, tmp_path: Path) -> None:
    text = (ROOT / "docs/statistics.md").read_text()
    script = text.partition("```python\n")[2].partition("```")[0]
    with on_hakmem(checkout, tmp_path, FRAGMENTED) as pid:
        done = subprocess.run(
            [sys.executable, "-c", script, str(pid)], capture_output=True, text=True, check=True
        )
        expected = books_of(pid).spans["used_pages"]
    assert f"used_pages {expected}\n" in done.stdout
