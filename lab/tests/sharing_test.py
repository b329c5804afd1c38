"""Shared lines: growth from made-up runs, what must be true of the simulator, and one tiny run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.sharing import cores_read, workloads_choose
from hakmem_lab.errors import LabError
from hakmem_lab.reports.sharing import Sharing, answer_lines, growth_grid, hottest_grid
from hakmem_lab.studies.sharing import (
    COUNTS,
    LIBRARY,
    NODES,
    PLANTED,
    PLANTED_NAME,
    TRUTH_CORES,
    Counts,
    Machine,
    Place,
    Simulation,
    Simulator,
    Truth,
    growth_of,
    planted_find,
    rows_of,
    things,
    truths,
)
from lab_command import lab

NONE = Counts(*[0] * 11, remote=(0,) * len(NODES))


def simulation_make(workload: str, cores: int, moves: int, name: str = "in_use") -> Simulation:
    entry = replace(
        NONE, calls=100, accesses=500, atomics=10, transfers=moves, remote=(moves // 2, moves, moves)
    )
    place = Place("malloc", name, "refill, heap/alloc.c:80", moves, 0, 10)
    entries = {"malloc": entry, "free": NONE, "thread end": NONE, "own thread": NONE, "user": NONE}
    return Simulation(workload, cores, 64, 4, 1, 100, entries, (place,) if moves else ())


def sharing_make(*runs: Simulation, holds: bool = True) -> Sharing:
    by_workload: dict[str, dict[int, list[Simulation]]] = {}
    for run in runs:
        by_workload.setdefault(run.workload, {}).setdefault(run.cores, []).append(run)
    return Sharing([Truth("water is wet", "wet", holds)], by_workload, Machine())


# ---- what was counted -----------------------------------------------------------------------------------------


def test_figures_are_of_each_call_and_tell_how_schedules_differ() -> None:
    rows = rows_of([simulation_make("mid", 64, 50), simulation_make("mid", 64, 150)])
    assert [row.entry for row in rows] == ["malloc"]  # nothing else was called, or touched anything
    figures = rows[0].figures
    assert (figures["transfers"].mean, figures["transfers"].low, figures["transfers"].high) == (1, 0.5, 1.5)
    assert figures["accesses"].mean == 5
    assert figures[f"between {NODES[0]} nodes"].mean == 0.5
    assert set(COUNTS) <= figures.keys()


def test_growth_is_from_the_fewest_cores_to_the_most() -> None:
    runs = {256: [simulation_make("mid", 256, 90)], 64: [simulation_make("mid", 64, 30)]}
    assert growth_of("mid", runs).ratio == pytest.approx(3)
    assert growth_of("mid", {64: [simulation_make("mid", 64, 0)]}).ratio is None


def test_the_answer_tells_what_grows_from_what_does_not() -> None:
    counted = sharing_make(
        simulation_make("private", 64, 0),
        simulation_make("private", 256, 0),
        simulation_make("mid", 64, 30),
        simulation_make("mid", 256, 90),
        simulation_make("large", 64, 300),
        simulation_make("large", 256, 310),
    )
    quiet, flat, growing = answer_lines(counted)
    assert quiet == "No more than 0.01 lines move for an operation from 64 to 256 cores: private."
    assert "large (3.10)" in flat
    assert "mid (0.30 to 0.90)" in growing
    assert [row[0] for row in growth_grid(counted).rows] == ["large", "mid", "private"]
    assert [row[1] for row in hottest_grid(counted).rows] == ["in_use", "in_use"]


def test_a_simulator_that_is_wrong_has_no_answer() -> None:
    (line,) = answer_lines(sharing_make(simulation_make("mid", 64, 30), holds=False))
    assert line.startswith("The simulator is wrong") and "water is wet" in line


def test_a_counter_is_found_where_it_moved_most_and_only_then() -> None:
    own = simulation_make("mid", 64, 50)
    planted = replace(
        own, places=(*own.places, Place("malloc", PLANTED_NAME, "refill, planted.c:61", 40, 0, 40))
    )
    assert planted_find(planted) == "planted_counter, number 2: 40 moves, in refill, planted.c:61"
    assert planted_find(own) == ""
    others = tuple(Place("free", f"other {number}", "x", 60, 0, 0) for number in range(3))
    assert planted_find(replace(planted, places=(*planted.places, *others))) == ""


# ---- wrong words ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0", "12", "264", "eight", ""])
def test_cores_are_dealt_out_evenly_to_nodes(text: str) -> None:
    with pytest.raises(LabError, match="--cores"):
        cores_read(text)


def test_an_unknown_workload_is_refused() -> None:
    assert cores_read("64,8") == [8, 64]
    with pytest.raises(LabError, match="no workload 'nothing' to simulate; there are: private"):
        workloads_choose("private,nothing")


# ---- the simulator ------------------------------------------------------------------------------------------------


@pytest.fixture
def simulator(checkout: Checkout) -> Simulator:
    if not (checkout.build / "bench/sharing/sharing").is_file():
        pytest.skip("this build has no simulator of shared lines: only the release has")
    return Simulator(checkout)


def test_what_must_be_true_is(simulator: Simulator) -> None:
    for truth in truths(simulator, 7):
        assert truth.holds, f"{truth.what}: {truth.found}"


def test_a_run_is_the_same_again(simulator: Simulator) -> None:
    first, again, other = (simulator.run("larson", 16, seed, Machine(200)) for seed in (3, 3, 4))
    assert first.entries == again.entries
    assert first.entries != other.entries


def test_nothing_of_the_planted_counter_is_in_hakmem(simulator: Simulator) -> None:
    counted, planted = (
        {one.name for one in things(simulator.run("mid", TRUTH_CORES, 5, Machine(300), library), ["malloc"])}
        for library in (LIBRARY, PLANTED)
    )
    assert PLANTED_NAME in planted - counted
    assert counted and "other memory" not in counted, "all that moved has a name"


@pytest.mark.usefixtures("simulator")
def test_command_writes_its_report(build: Path, tmp_path: Path) -> None:
    report, kept = tmp_path / "sharing.md", tmp_path / "sharing.json"
    arguments = [
        "sharing",
        "--workloads",
        "private,hot",
        "--cores",
        "8,16",
        "--ops",
        "200",
        "--schedules",
        "2",
    ]
    done = lab(*arguments, "--seed", "1", "--build", str(build), "--report", str(report), "--json", str(kept))
    assert done.returncode == 0, done.stderr
    text = report.read_text()
    assert "Lines that the allocator moves for each operation" in text
    assert "*Limits.* No time" in text
    assert (
        report.with_suffix(".csv")
        .read_text()
        .startswith("workload,cores,seed,operations,entry,calls,accesses")
    )
    content = json.loads(kept.read_text())
    assert all(one["holds"] for one in content["truths"])
    moves = {one["workload"]: one["moves"]["16"]["mean"] for one in content["growth"]}
    assert moves["private"] == 0 < moves["hot"]
