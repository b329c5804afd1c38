"""The tools of bench/ that measure other processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from lab_processes import all_end
from lab_workloads import line_of, run


def test_exit_pages_counts_what_a_process_holds(build: Path) -> None:
    line = line_of(build / "bench/exit_pages", "-- true")
    assert 0 < line["private_dirty_kib"] <= line["rss_kib"] <= line["peak_rss_kib"] + 64
    assert line["served"] is True
    done = run(build / "bench/exit_pages", "-- false")
    assert done.returncode == 1
    assert "false exited with 1" in done.stderr


def test_exit_pages_sees_dirty_memory(build: Path) -> None:
    program = build / "bench/exit_pages"
    small, large = (
        line_of(program, f"-- {build}/bench/random_mixed {ops} 8192 1")["private_dirty_kib"]
        for ops in (1, 200_000)
    )
    assert large - small > 1000


def test_first_calls_counts_windows_and_calls(build: Path) -> None:
    line = line_of(build / "bench/first_calls", f"-- {build}/bench/cold_start 1 1")
    assert line["windows"] == line_of(build / "bench/cold_start", "1 1")["sizes"] > 100
    assert line["calls"] == sum(line["by_name"].values())
    assert line["windows_with_calls"] <= line["calls"]


def test_first_calls_sees_a_call(build: Path) -> None:
    # More than glibc has at hand when it starts.
    line = line_of(build / "bench/first_calls", f"-- {build}/bench/cold_start 64 1")
    assert line["calls"] > 0


def test_start_loop_counts_starts(build: Path) -> None:
    line = line_of(build / "bench/start_loop", "20 -- true")
    assert line["ops"] == 20
    assert line["minor_faults"] > 20
    assert run(build / "bench/start_loop", "0 -- true").returncode == 2
    assert run(build / "bench/start_loop", "2 -- false").returncode == 1


def test_a_preload_that_is_not_there_is_refused(build: Path) -> None:
    for program, first in (
        ("exit_pages", ""),
        ("peak_memory", ""),
        ("start_loop", "2 "),
        ("first_calls", ""),
    ):
        done = run(build / "bench" / program, f"{first}--preload /nowhere.so -- true")
        assert done.returncode == 1
        assert "cannot read /nowhere.so" in done.stderr


def test_peak_memory_names_the_largest_process(build: Path) -> None:
    program = build / "bench/peak_memory"
    mix = f"{build}/bench/random_mixed 200000 8192 1"
    done = subprocess.run(
        [program, "--", "sh", "-c", f"true; {mix}; true"], capture_output=True, text=True, check=False
    )
    line = json.loads(done.stdout)
    assert line["process"] == "random_mixed"
    assert line["served"] is True
    assert line["peak_rss_kib"] >= line["rss_kib"] > 4000
    alone = line_of(build / "bench/random_mixed", "200000 8192 1")["peak_rss_kib"]
    assert abs(line["peak_rss_kib"] - alone) < 1000


def test_peak_memory_fails_when_the_command_does(build: Path) -> None:
    done = run(build / "bench/peak_memory", "-- false")
    assert done.returncode == 1
    assert "false exited with 1" in done.stderr


def window_of(*libraries: Path) -> str:
    """Where a process finds its window, to 4 GiB."""
    text = "import ctypes; libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_size_t; print(libc.malloc(64) >> 32)"
    environment = {**os.environ, "LD_PRELOAD": " ".join(map(str, libraries))}
    return subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_the_window_lies_in_one_place_where_that_is_wanted(served: Path) -> None:
    steady, library = served / "bench/libsteady.so", served / "libhakmem.so"
    assert len({window_of(steady, library) for _ in range(4)}) == 1
    assert len({window_of(library) for _ in range(4)}) > 1


STARTER = """
import os, signal, subprocess, sys, time
deadline = time.monotonic() + 30
with subprocess.Popen([sys.argv[1], "1000000000000", "256", "1"]) as workload:
    def has_begun():
        words = open(f"/proc/{workload.pid}/stat").read().split()
        return words[1] == "(random_mixed)" and int(words[13]) >= 5  # ticks
    while not has_begun() and time.monotonic() < deadline:
        time.sleep(0.01)
    print(workload.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_workload_ends_with_who_started_it(build: Path) -> None:
    """Nobody else limits its time."""
    line = [sys.executable, "-I", "-c", STARTER, str(build / "bench/random_mixed")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
    assert starter.returncode == -signal.SIGKILL
    try:
        assert all_end([pid])
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
