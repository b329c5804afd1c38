"""The programs of bench/ as they are built: what they print, that they do the work, what they refuse."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hakmem_lab.measure.runner import Line
from hakmem_lab.workloads.cells import FIRST_FIGURES

# {seed} stands where the seed goes.
SMALL: dict[str, str] = {
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
    "shared_write": "100000 16 {seed}",
    "no_alloc": "20000 {seed}",
    "cold_start": "2 {seed}",
}

KEYS = {
    "workload",
    "ops",
    "seconds",
    "ops_per_second",
    "cpu_seconds",
    "minor_faults",
    "minor_faults_before",
    "major_faults",
    "involuntary_switches",
    "peak_rss_kib",
    "checksum",
    "seed",
    "arguments",
    "malloc_from",
    "free_from",
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
    line: Line = json.loads(done.stdout)
    return line


@pytest.mark.parametrize("name", SMALL)
def test_one_line_says_everything(build: Path, name: str) -> None:
    line = line_of(build / "bench" / name, SMALL[name].format(seed=7))
    assert line.keys() >= KEYS
    assert line["workload"] == name
    assert line["seed"] == "7"
    assert line["ops"] > 0
    assert line["ops_per_second"] == pytest.approx(line["ops"] / line["seconds"], rel=0.01)
    assert line["peak_rss_kib"] > 100
    assert line["malloc_from"] == line["free_from"]


@pytest.mark.parametrize("name", [name for name in SMALL if name != "cold_start"])
def test_the_seed_decides_the_work(build: Path, name: str) -> None:
    first, again, other = (
        line_of(build / "bench" / name, SMALL[name].format(seed=seed)) for seed in (7, 7, 8)
    )
    assert first["checksum"] == again["checksum"] != other["checksum"]
    assert first["ops"] == again["ops"]


def test_larson_runs_for_its_time_and_threads_follow_each_other(build: Path) -> None:
    line = line_of(build / "bench/larson", "1 10 500 100 10 5 2")
    assert 1 <= line["seconds"] < 10
    assert line["thread_generations"] > 2


def test_large_memory_is_counted_in_its_steady_state(build: Path) -> None:
    line = line_of(build / "bench/vm_mixed", "61 4 1")
    assert line["ops"] == 30


@pytest.mark.parametrize(("step", "steps"), [(0, 28), (4 << 20, 16)])
def test_growth_counts_its_steps(build: Path, step: int, steps: int) -> None:
    assert line_of(build / "bench/realloc_growth", f"2 3 {step} 1")["ops"] == 2 * 3 * steps


def test_a_server_serves_the_same_requests_whatever_time_they_take(build: Path) -> None:
    line = line_of(build / "bench/server_peaks", "1 5")
    # Two threads, 200 times a second 100 requests, and one peak.
    assert 40_000 < line["ops"] < 45_000
    assert line["cpu_ns_per_request"] == pytest.approx(line["cpu_seconds"] * 1e9 / line["ops"], rel=0.01)
    assert line["peak_rss_kib"] > 256 << 10


def test_a_paced_program_is_slowed_by_processor_time(build: Path) -> None:
    line = line_of(build / "bench/server_peaks", "1 5", {"WORKLOAD_SLOWDOWN": "100"})
    assert 1 + line["cpu_seconds"] / 3 < line["seconds"] < 1.3 + line["cpu_seconds"]


@pytest.mark.slow
def test_give_back_tells_what_stays(build: Path) -> None:
    line = line_of(build / "bench/give_back", "16 1")
    assert line["seconds"] >= 10
    assert line["rss_kib_loaded"] - line["rss_kib_before"] > 16 << 10
    assert 0 < line["live_pages_kib"] < 2 << 10
    for second in (0, 1, 2, 5, 10):
        assert line[f"rss_kib_after_{second}s"] >= line["live_pages_kib"]


def test_process_start_is_silent(build: Path) -> None:
    done = run(build / "bench/process_start", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_negative_control_allocates_nothing(build: Path) -> None:
    few, many = (line_of(build / "bench/no_alloc", f"{ops} 1")["peak_rss_kib"] for ops in (10, 10**6))
    assert abs(many - few) < 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "OPS is missing"),
        ("10 5", "SEED is missing"),
        ("x 5 1", "OPS is a whole number from 1 to 1099511627776, not 'x'"),
        ("-1 5 1", "OPS is a whole number"),
        ("10 0 1", "SLOTS is a whole number"),
        ("10 5 1 7", "MIN is a whole number from 8"),
        ("10 5 1 16 32 9", "6 arguments are too many"),
    ],
)
def test_a_wrong_command_line_is_refused(build: Path, arguments: str, message: str) -> None:
    done = run(build / "bench/random_mixed", arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr


def test_help_goes_to_standard_output(build: Path) -> None:
    done = run(build / "bench/larson", "--help")
    assert done.returncode == 0
    assert done.stdout == "usage: larson SECONDS MIN MAX BLOCKS ROUNDS SEED THREADS\n"


def test_a_known_slowdown_is_exact(build: Path) -> None:
    program = build / "bench/no_alloc"
    done = run(program, "10 1", {"WORKLOAD_SLOWDOWN": "much"})
    assert done.returncode == 1
    assert "WORKLOAD_SLOWDOWN is a number of per cent" in done.stderr
    # A slowdown this large is beyond any noise.
    seconds = [
        min(line_of(program, "2000000 1", {"WORKLOAD_SLOWDOWN": slowdown})["seconds"] for _ in range(3))
        for slowdown in ("0", "900")
    ]
    assert 4 < seconds[1] / seconds[0] < 25


def test_corruption_is_caught(build: Path, tmp_path: Path) -> None:
    # An allocator that hands every block out twice.
    source = tmp_path / "twice.c"
    source.write_text(
        "#include <stddef.h>\n"
        "static char room[4096] __attribute__((aligned(16))); static unsigned long next;\n"
        "void *malloc(size_t n) { (void)n; return room + (next++ / 2 % 32) * 128; }\n"
        "void free(void *p) { (void)p; }\n"
    )
    library = tmp_path / "twice.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-fno-builtin", "-o", str(library), str(source)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("no C compiler")
    done = run(build / "bench/lifo_burst", "8 64 10 1", {"LD_PRELOAD": str(library)})
    assert done.returncode == 1
    assert "blocks were not as they were left" in done.stderr


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


@pytest.mark.parametrize("cell", FIRST_FIGURES, ids=lambda cell: cell.name)
def test_every_cell_runs_as_it_is_written(build: Path, cell: object) -> None:
    chosen = next(one for one in FIRST_FIGURES if one is cell)
    line = line_of(build / "bench" / chosen.program, " ".join(chosen.command(min(50, chosen.first_count), 3)))
    assert line["seed"] == "3"
