"""The programs of bench/ as they are built: what they print, that they do the work, what they refuse."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hakmem_lab.workloads.cells import CELLS, FIRST_FIGURES, Cell, Group, Suite, suite_cells
from lab_workloads import SMALL, library_make, line_of, run

CLASSIC = {
    "larson": "1 8 128 100 10 {seed} 2",
    "random_mixed": "20000 100 {seed}",
    "mid_mt_gap": "5000 50 {seed}",
    "mid_large_mt": "2 3000 50 {seed}",
    "vm_mixed": "20 4 {seed}",
    "tiny_hot": "32 16 500",
    "fixed_size": "20000 64 100",
    "comprehensive": "",
}
"""The command lines that are known from elsewhere."""

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


@pytest.mark.parametrize("name", SMALL)
def test_one_line_says_everything(build: Path, name: str) -> None:
    line = line_of(build / "bench" / name, SMALL[name].format(seed=7))
    assert line.keys() >= KEYS
    assert line["workload"] == name
    assert line["seed"] == "7"
    assert line["arguments"]["seed"] == 7
    assert line["ops"] > 0
    assert line["ops_per_second"] == pytest.approx(line["ops"] / line["seconds"], rel=0.01)
    assert line["peak_rss_kib"] > 100
    assert line["malloc_from"] == line["free_from"]


@pytest.mark.parametrize("name", SMALL)
def test_the_seed_decides_the_work(build: Path, name: str) -> None:
    first, again, other = (
        line_of(build / "bench" / name, SMALL[name].format(seed=seed)) for seed in (7, 7, 8)
    )
    assert first["checksum"] == again["checksum"] != other["checksum"]
    assert first["ops"] == again["ops"]


@pytest.mark.parametrize("name", [name for name in SMALL if name != "server_peaks"])
def test_the_work_is_the_same_under_every_allocator(build: Path, name: str) -> None:
    library = build / "libhakmem.so"
    if not library.is_file():
        pytest.skip("no libhakmem.so in this build")
    arguments = SMALL[name].format(seed=11)
    own = line_of(build / "bench" / name, arguments)
    other = line_of(build / "bench" / name, arguments, {"LD_PRELOAD": str(library)})
    assert Path(other["malloc_from"]) == library
    assert own["checksum"] == other["checksum"]


@pytest.mark.parametrize("name", CLASSIC)
def test_the_classic_command_lines_hold(build: Path, name: str) -> None:
    assert line_of(build / "bench" / name, CLASSIC[name].format(seed=5))["ops"] > 0


def test_larson_runs_for_its_time_and_threads_follow_each_other(build: Path) -> None:
    line = line_of(build / "bench/larson", "1 10 500 100 10 5 2")
    assert 1 <= line["seconds"] < 10
    assert line["thread_generations"] > 2
    # How much it did is the clock's doing: two runs cannot be compared by their sums.
    assert line["checksum"] is None
    assert line["checksum_of_this_run"] != "0" * 16


def test_mostly_allocating_grows_where_replacing_does_not(build: Path) -> None:
    peaks = [
        line_of(build / "bench/random_mixed", f"4000 4000 1 4096 4096 {allocating}")["peak_rss_kib"]
        for allocating in (50, 90)
    ]
    # Of 4000 operations that replace, 37 % find their slot taken; of those that mostly allocate, 10 % free.
    assert peaks[1] > 1.15 * peaks[0]
    refused = run(build / "bench/random_mixed", "10 5 1 16 32 40")
    assert refused.returncode == 2
    assert "ALLOCATING is a whole number from 50 to 100" in refused.stderr


def test_a_purge_begins_anew(build: Path) -> None:
    few, many = (
        line_of(build / "bench/random_mixed", f"{ops} 1000 1 4096 4096 90")["peak_rss_kib"]
        for ops in (1_000, 100_000)
    )
    # The heap grows with the slots until a purge empties them; what a purge left behind would come a hundred times.
    assert many < 2 * few


def test_comprehensive_tells_each_pattern(build: Path) -> None:
    line = line_of(build / "bench/comprehensive", "2 1")
    assert line["ops"] == 2 * 4 * 1024 * line["classes"]
    speeds = [line[f"{pattern}_blocks_per_second"] for pattern in ("lifo", "fifo", "random", "burst")]
    # Each pattern has a quarter of the blocks: their times add up to the whole.
    assert sum(line["ops"] / 4 / speed for speed in speeds) == pytest.approx(line["seconds"], rel=0.05)


@pytest.mark.parametrize("consumers", [1, 3])
@pytest.mark.parametrize("batch", [1, 7])
def test_every_consumer_gets_its_blocks(build: Path, batch: int, consumers: int) -> None:
    line = line_of(build / "bench/producer_consumer", f"1000 64 {batch} 5 {consumers}")
    assert line["ops"] == -(-1000 // batch) * batch
    alone = line_of(build / "bench/producer_consumer", f"1000 64 {batch} 5")
    assert line["checksum"] == alone["checksum"]


def test_fragmentation_tells_footprint_over_time(build: Path) -> None:
    line = line_of(build / "bench/fragmentation", "600000 3")
    rss, live = line["rss_kib"], line["live_kib"]
    assert len(rss) == len(live) == 16
    assert live[0] < live[15]
    assert all(held > 0.9 * lives for held, lives in zip(rss[2:], live[2:], strict=True))
    shares = [100 * held // lives for held, lives in zip(rss[8:], live[8:], strict=True)]
    assert line["footprint_percent_mean"] == sum(shares) // 8
    assert line["footprint_percent_most"] == max(shares)


def test_a_peak_is_seen_and_what_idle_keeps(build: Path) -> None:
    began = time.monotonic()
    line = line_of(build / "bench/peak_then_idle", "32 1 1")
    took = time.monotonic() - began
    assert line["rss_kib_at_peak"] - line["rss_kib_before"] > 32 << 10
    assert line["live_kib"] == pytest.approx(3.2 * 1024, rel=0.25)
    for figure in ("rss_kib_after_free", "idle_rss_kib"):
        assert line["live_kib"] < line[figure] - line["rss_kib_before"] < 40 << 10
    assert line["seconds"] + 1 < took  # its seconds are those of its work


def test_cold_start_adds_up_its_processes(build: Path) -> None:
    one, five = (line_of(build / "bench/cold_start", f"8 1 {processes}") for processes in (1, 5))
    assert five["ops"] == 5 * one["ops"] == 5 * 8 * one["sizes"]
    assert five["minor_faults"] > 3 * one["minor_faults"]
    assert five["peak_rss_kib"] < 2 * one["peak_rss_kib"]
    assert five["seed"] == one["seed"]
    spoiled = run(build / "bench/cold_start", "8 1 1", {"COLD_START_USED": "1 2"})
    assert spoiled.returncode == 1
    assert "COLD_START_USED is not what a process before this one left" in spoiled.stderr


def slowdown_check(program: Path, arguments: str, least: float, most: float) -> None:
    """By 900 per cent it is LEAST to MOST times as slow."""
    # In turn, until each had a run that nobody disturbed.
    fastest = {"0": float("inf"), "900": float("inf")}
    for _ in range(50):
        for slowdown in fastest:
            seconds = line_of(program, arguments, {"WORKLOAD_SLOWDOWN": slowdown})["seconds"]
            fastest[slowdown] = min(fastest[slowdown], seconds)
        if least < fastest["900"] / fastest["0"] < most:
            return
    raise AssertionError(f"900 per cent slower than {fastest['0']} s is not {fastest['900']} s")


def test_a_replaced_process_is_slowed_as_a_whole(build: Path) -> None:
    slowdown_check(build / "bench/cold_start", "8 1 5", 4, 25)


def test_large_memory_is_counted_in_its_steady_state(build: Path) -> None:
    line = line_of(build / "bench/vm_mixed", "61 4 1")
    assert line["ops"] == 30


@pytest.mark.parametrize("program", ["random_mixed", "vm_mixed"])
def test_sizes_are_a_range(build: Path, program: str) -> None:
    line_of(build / "bench" / program, "20 4 1 4096 4096")
    refused = run(build / "bench" / program, "20 4 1 4097 4096")
    assert refused.returncode != 0
    assert "MIN is larger than MAX" in refused.stderr


@pytest.mark.parametrize(("step", "steps"), [(0, 28), (4 << 20, 16)])
def test_growth_counts_its_steps(build: Path, step: int, steps: int) -> None:
    assert line_of(build / "bench/realloc_growth", f"2 3 {step} 1")["ops"] == 2 * 3 * steps


def test_a_server_serves_the_same_requests_whatever_time_they_take(build: Path) -> None:
    line = line_of(build / "bench/server_peaks", "1 5")
    # Two threads, 200 times a second 100 requests, and one peak.
    assert 40_000 < line["ops"] < 45_000
    assert line["cpu_ns_per_request"] == pytest.approx(line["cpu_seconds"] * 1e9 / line["ops"], rel=0.01)
    # A peak of 256 MiB, and 32 always; on a busy machine one thread may have freed its half before the other allocates.
    assert line["peak_rss_kib"] > 140 << 10


def test_a_paced_program_is_slowed_by_processor_time(build: Path) -> None:
    line = line_of(build / "bench/server_peaks", "1 5", {"WORKLOAD_SLOWDOWN": "100"})
    assert line["seconds"] > 1 + line["cpu_seconds"] / 3


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
        ("10 5 1 16 32 60 9", "7 arguments are too many"),
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
    slowdown_check(program, "2000000 1", 8, 12)


# An allocator that hands every block out twice.
TWICE = (
    "#include <stddef.h>\n"
    "static char room[4096] __attribute__((aligned(16))); static unsigned long next;\n"
    "void *malloc(size_t n) { (void)n; return room + (next++ / 2 % 32) * 128; }\n"
    "void free(void *p) { (void)p; }\n"
)

# An allocator that aligns to 16 bytes, whatever it is asked for.
CROOKED = (
    "#define _GNU_SOURCE\n#include <stdlib.h>\n"
    "int posix_memalign(void **p, size_t a, size_t n) { (void)a; *p = malloc(n); return 0; }\n"
    "void *aligned_alloc(size_t a, size_t n) { (void)a; return malloc(n); }\n"
)


@pytest.mark.parametrize(
    ("source", "program", "arguments", "message"),
    [
        (TWICE, "lifo_burst", "8 64 10 1", "blocks were not as they were left"),
        (TWICE, "comprehensive", "1 1", "blocks were not as they were left"),
        (CROOKED, "aligned_mix", "1000 10 1", "is not aligned to"),
    ],
)
def test_a_broken_allocator_is_caught(
    build: Path, tmp_path: Path, source: str, program: str, arguments: str, message: str
) -> None:
    library = library_make(tmp_path / "broken.so", source)
    done = run(build / "bench" / program, arguments, {"LD_PRELOAD": str(library)})
    assert done.returncode == 1
    assert message in done.stderr


def runs_briefly(cell: Cell) -> bool:
    """The others are counted in seconds, or take no seed: tests of their own run them."""
    return cell.program not in ("larson", "server_peaks", "peak_then_idle", "start_loop")


@pytest.mark.parametrize("cell", filter(runs_briefly, CELLS), ids=lambda cell: cell.name)
def test_every_cell_runs_as_it_is_written(build: Path, cell: Cell) -> None:
    line = line_of(build / "bench" / cell.program, " ".join(cell.command(min(50, cell.first_count), 3)))
    assert line["seed"] == "3"
    if cell.figure:
        assert line[cell.figure] >= 0


def test_every_workload_has_a_cell_and_every_group_is_quickly_seen() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    # `line_turns` is of the machine, not of an allocator.
    assert {cell.program for cell in CELLS} == {*SMALL, "larson", "start_loop"} - {"line_turns"}
    quick = suite_cells(Suite.QUICK)
    assert {cell.group for cell in quick} == set(Group)
    assert len(quick) <= 32
    assert suite_cells(Suite.FULL) == CELLS
    names = [cell.name for cell in CELLS]
    assert all(cell.name in names for cell in FIRST_FIGURES)
