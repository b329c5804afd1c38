"""Memory is there before a run is."""

from __future__ import annotations

import mmap
import os
import random
import resource
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.measure import backing, observe, task
from hakmem_lab.measure.backing import (
    FREE_SHARE,
    PAGE_BYTES,
    PROBED_PAGES,
    RESERVE_BYTES,
    Backing,
    memory_touch,
    touch_us,
)
from hakmem_lab.measure.command import CommandTask
from hakmem_lab.measure.launch import Start
from hakmem_lab.measure.pairs import conditions_draw
from hakmem_lab.measure.rounds import Failure
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.task import CellTask
from hakmem_lab.measure.turns import Seat
from hakmem_lab.workloads.cells import COUNT_PLACE, SEED_PLACE, Cell
from lab_pairs import GLIBC, RUN

CELL = Cell("cell", "program", (COUNT_PLACE, SEED_PLACE), first_count=1000)


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    monkeypatch.setattr(backing, "memory_touch", sizes.append)
    return sizes


def test_as_much_is_touched_as_the_largest_run_so_far_had(touched: list[int]) -> None:
    one = Backing()
    one.ready()
    for peak in (100 << 10, 50 << 10, None):
        one.learn(peak)
        one.ready()
    assert touched == [RESERVE_BYTES] + [(100 << 20) + RESERVE_BYTES] * 3


def test_no_more_is_touched_than_a_share_of_what_is_free(
    touched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"SC_AVPHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", values.__getitem__)
    Backing(peak_kib=1 << 20).ready()
    assert touched == [FREE_SHARE * 1000 * 4096]


def peak_bytes() -> int:
    (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM")]
    return 1024 * int(line.split()[1])


def test_touched_memory_was_resident_and_is_free_again() -> None:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, size = peak_bytes(), 64 << 20
    memory_touch(size)
    assert peak_bytes() >= before + size - (8 << 20)
    Path("/proc/self/clear_refs").write_text("5")
    assert peak_bytes() < before + size // 2


def test_a_first_touch_has_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[int] = []
    clock = iter((1.0, 1.0 + PROBED_PAGES * 2e-6))

    def tick() -> float:
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
        return next(clock)

    monkeypatch.setattr(time, "perf_counter", tick)
    assert touch_us() == pytest.approx(2.0)
    before, after = faults
    assert after - before >= PROBED_PAGES * PAGE_BYTES // mmap.PAGESIZE


def test_it_is_asked_after_memory_was_touched_and_kept_with_the_run(
    touched: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, build: Path
) -> None:
    monkeypatch.setattr(backing, "touch_us", lambda: 10.0 + len(touched))
    start = Start(build / "bench" / "command_cost", ("true",), tmp_path)
    one = CommandTask(start, threads=1)
    runs = [one.run(GLIBC, Conditions(1, 0, tuple(os.sched_getaffinity(0)))) for _ in range(2)]
    assert [run.touch_us for run in runs] == [11.0, 12.0]


def test_what_is_less_than_a_page_or_refused_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(12, "refused")

    monkeypatch.setattr(mmap, "mmap", refuse)
    memory_touch(100)
    memory_touch(1 << 20)
    assert touch_us() is None


def test_a_cells_runs_are_backed_also_with_another_count(
    touched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class FakeStage:
        def program(self, name: str) -> Path:
            return Path(name)

    def run(
        _program: Path, arguments: Sequence[str], _arm: Arm, _conditions: Conditions, _seat: Seat | None
    ) -> Measured:
        return replace(RUN, peak_rss_kib=int(arguments[0]))

    monkeypatch.setattr(task, "workload_run", run)
    one = CellTask(FakeStage(), CELL, 1024)  # type: ignore[arg-type]  # the fake has all that is asked of a stage
    conditions = conditions_draw(one, random.Random(1))
    one.run(GLIBC, conditions)
    more = replace(one, count=4096)
    more.run(GLIBC, conditions)
    more.run(GLIBC, conditions)
    assert [size - RESERVE_BYTES for size in touched] == [0, 1 << 20, 4 << 20]
    assert more == replace(one, count=4096, backing=Backing())  # the same task, whatever it has seen


def test_runs_with_instruments_are_backed(
    touched: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class FakeStage:
        folder = tmp_path

        def program(self, _name: str) -> Path:
            return Path("/bin/true")

    monkeypatch.setattr(observe, "arm_prepared", lambda _stage, _cell, arm: arm)
    one = CellTask(FakeStage(), CELL, 1024, backing=Backing(peak_kib=2048))  # type: ignore[arg-type]  # as above
    conditions = conditions_draw(one, random.Random(1))
    for run in (observe.latency_run, observe.observed_run):
        assert isinstance(run(one, GLIBC, conditions), Failure)  # it prints nothing
    assert touched == [RESERVE_BYTES + (2 << 20)] * 2


def test_a_commands_runs_are_backed(touched: list[int], tmp_path: Path, build: Path) -> None:
    start = Start(build / "bench" / "command_cost", ("python3", "-c", "bytearray(40 << 20)"), tmp_path)
    one = CommandTask(start, threads=1)
    for _ in range(2):
        one.run(GLIBC, Conditions(1, 0, tuple(os.sched_getaffinity(0))))
    assert touched[0] == RESERVE_BYTES
    assert (40 << 20) < touched[1] - RESERVE_BYTES < (120 << 20)
