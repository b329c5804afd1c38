"""What the workloads of bench/ say of single calls when WORKLOAD_LATENCY asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_workloads import SMALL, library_make, line_of, run

LATENCY = {"WORKLOAD_LATENCY": "1"}


# Those that call no allocator, or run by the clock.
WITHOUT = ("line_turns", "no_alloc", "server_peaks")


@pytest.mark.parametrize("name", [name for name in SMALL if name not in WITHOUT])
def test_latency_is_told_when_asked(build: Path, name: str) -> None:
    program, arguments = build / "bench" / name, SMALL[name].format(seed=7)
    plain, line = line_of(program, arguments), line_of(program, arguments, LATENCY)
    assert "latency_ns" not in plain
    assert line["checksum"] == plain["checksum"]
    latency = line["latency_ns"]
    assert 0 < latency["clock"] <= latency["p50"] <= latency["p99"] <= latency["p999"] <= latency["max"]
    ends, counts = zip(*latency["histogram"], strict=True)
    assert list(ends) == sorted(set(ends))
    assert ends[0] >= 0.95 * latency["clock"]
    assert min(counts) > 0
    assert sum(counts) == latency["calls"] > 0
    assert latency["max"] <= ends[-1] <= 1.04 * latency["max"] + 1


@pytest.mark.parametrize(
    ("name", "arguments", "calls"),
    [
        ("tiny_hot", "32 16 500", 2 * 16 * 500),
        ("fixed_size", "20000 64 1", 2 * 20_000 - 1),
        ("mid_large_mt", "4 4000 1 3", 2 * 4_000 - 4),
        ("producer_consumer", "1000 64 10 1 2", 2 * 1000),
        ("thread_churn", "100 7 64 1", 100 * 2 * 7 - 2 * 7),
        ("realloc_growth", "1 1 4194304 1", 1 + 16 + 1),
        ("comprehensive", "1", 2 * 4 * 1024 * 112),
        ("cold_start", "3 1 1", 3 * 112),
    ],
)
def test_every_call_is_counted(build: Path, name: str, arguments: str, calls: int) -> None:
    assert line_of(build / "bench" / name, arguments, LATENCY)["latency_ns"]["calls"] == calls


def test_percentiles_are_those_of_the_histogram(build: Path) -> None:
    latency = line_of(build / "bench/random_mixed", "20000 100 1", LATENCY)["latency_ns"]
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
        seen = 0
        for end, count in latency["histogram"]:
            seen += count
            if seen >= share * latency["calls"]:
                assert latency[name] == end
                break


def test_latency_sees_slow_calls(build: Path, tmp_path: Path) -> None:
    # glibc with a free that takes a millisecond every 200th time: 1 in 400 calls.
    library = library_make(
        tmp_path / "slow.so",
        "#define _GNU_SOURCE\n#include <stdlib.h>\n#include <time.h>\n"
        "extern void __libc_free(void *); static unsigned long calls;\n"
        "void free(void *p) {\n"
        "    if (++calls % 200 == 0) { struct timespec ms = {0, 1000000}; nanosleep(&ms, NULL); }\n"
        "    __libc_free(p);\n"
        "}\n",
    )
    environment = LATENCY | {"LD_PRELOAD": str(library)}
    line = line_of(build / "bench/tiny_hot", "64 100 300", environment)
    latency = line["latency_ns"]
    assert latency["p99"] < 1e6 <= latency["p999"]
    slow = [(end, count) for end, count in latency["histogram"] if end >= 1e6]
    assert sum(count for _end, count in slow) == pytest.approx(150, abs=15)
    # However late they woke up: an end is at most 4 per cent above the calls before it.
    assert sum(end * count for end, count in slow) < 1.04 * line["seconds"] * 1e9


def test_latency_is_null_where_nothing_is_called(build: Path) -> None:
    assert line_of(build / "bench/no_alloc", "1000 1", LATENCY)["latency_ns"] is None
    assert "latency_ns" not in line_of(build / "bench/no_alloc", "1000 1", {"WORKLOAD_LATENCY": "0"})


def test_latency_is_asked_for_by_0_or_1(build: Path) -> None:
    done = run(build / "bench/random_mixed", "10 5 1", {"WORKLOAD_LATENCY": "yes"})
    assert done.returncode == 1
    assert "WORKLOAD_LATENCY is 0 or 1, not 'yes'" in done.stderr
    assert run(build / "bench/random_mixed", "10", LATENCY).returncode == 2
