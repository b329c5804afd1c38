"""Running the programs of bench/ as tests do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hakmem_lab.measure.runner import Line

# {seed} stands where the seed goes.
SMALL: dict[str, str] = {
    "scaling": "2 1048576 256 20000 {seed}",
    "random_mixed": "20000 100 {seed}",
    "fixed_size": "20000 64 100 {seed}",
    "vm_mixed": "20 4 {seed}",
    "realloc_growth": "1 2 0 {seed}",
    "server_peaks": "1 {seed}",
    "mid_mt_gap": "5000 50 {seed}",
    "mid_large_mt": "3 3000 50 {seed}",
    "lifo_burst": "100 0 50 {seed}",
    "tiny_hot": "32 16 500 {seed}",
    "producer_consumer": "20000 0 64 {seed}",
    "hand_over": "20000 100 0 {seed}",
    "exchange": "3 20000 50 {seed}",
    "shared_write": "100000 16 {seed}",
    "line_turns": "64 500 1 {seed}",
    "no_alloc": "20000 {seed}",
    "cold_start": "2 {seed}",
    "comprehensive": "1 {seed}",
    "aligned_mix": "5000 100 {seed}",
    "phase_change": "50000 256 {seed}",
    "fragmentation": "20000 {seed}",
    "thread_churn": "20 50 0 {seed}",
    "own_write": "100000 16 {seed}",
    "peak_then_idle": "4 {seed} 0",
}


def run(
    program: Path, arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments.split()],
        env={"PATH": os.defpath, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def line_of(program: Path, arguments: str, environment: dict[str, str] | None = None) -> Line:
    done = run(program, arguments, environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return Line.parse(done.stdout, program.name)


def library_make(library: Path, source: str) -> Path:
    command = ["cc", "-shared", "-fPIC", "-O1", "-fno-builtin", "-x", "c", "-", "-o", str(library)]
    try:
        subprocess.run(command, input=source, text=True, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    return library
