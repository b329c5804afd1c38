"""Workloads by the names that --only is given."""

from __future__ import annotations

import pytest
from hakmem_lab.commands.builds import restricted
from hakmem_lab.commands.ceiling import cells_choose
from hakmem_lab.studies.candidates import workload_names, workloads_choose
from hakmem_lab.workloads.canned.file import canned_find
from hakmem_lab.workloads.cells import CELLS, Suite
from hakmem_lab.workloads.find import words_named
from hakmem_lab.workloads.footprint_inputs import PROGRAMS, programs_chosen


def chosen(only: str) -> list[str]:
    found = workloads_choose(Suite.FULL, words_named(only, workload_names()))
    return [*(cell.name for cell in found.cells), *found.programs]


@pytest.mark.parametrize("name", workload_names())
def test_every_name_that_is_printed_chooses_its_workload(name: str) -> None:
    assert chosen(name) == chosen(name.upper() if "," in name else name) == [name]


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (
            "8 threads, 8-32 KiB; larson, 2 threads, 8-128 B",
            ["8 threads, 8-32 KiB", "larson, 2 threads, 8-128 B"],
        ),
        ("two writers,lua", ["two writers, 16 B blocks", "two writers, 16 B blocks of their own", "lua"]),
        ("larson, 1 thread, 8-128 B; lua, redis;", ["larson, 1 thread, 8-128 B", "lua", "redis"]),
    ],
)
def test_names_and_words_are_told_apart(only: str, names: list[str]) -> None:
    assert chosen(only) == names


def test_all_that_take_names_take_whole_ones() -> None:
    names = [program.name for program in PROGRAMS]
    for name in names:
        assert [one.name for one in programs_chosen(words_named(name, names))] == [name]
    builds = canned_find("builds")
    for name in builds.benches:
        assert restricted(builds, words_named(name, builds.benches), []).benches == (name,)
    named = cells_choose(None, words_named("larson, 2 threads, 8-128 B", workload_names()))
    assert [cell.name for cell in named if not cell.control] == ["larson, 2 threads, 8-128 B"]
    assert {cell.name for cell in CELLS} <= set(workload_names())
