"""The defects of tests/explore can be planted, and name tests that exist; one of each kind is. ./hakmem explore --defects
plants all of them."""

import re
import sys
import tomllib
from functools import cache

import pytest
from toolbox import ROOT, Build, run, run_well, tool

FOLDER = ROOT / "tests/explore"
COMMAND = FOLDER / "explore.py"
NAMES = sorted(path.stem for path in (FOLDER / "defects").glob("*.toml"))
SPIN = {"spin_exit", "spin_found"}

SECONDS = 600  # each defect takes a build, and the model half a minute

# A memory order weakened, two steps swapped, a recheck dropped, and the same in the Promela model.
PLANTED = [
    "buffer_push_relaxed",
    "buffer_top_before_block",
    "exit_last_drain_dropped",
    "spin_last_drain_dropped",
]


@cache
def explored(build: Build) -> frozenset[str]:
    listed = run_well(sys.executable, "-B", COMMAND, "--list", env=build.environment())
    return frozenset(listed.split()) | SPIN


@pytest.mark.parametrize("name", NAMES)
def test_a_defect_can_be_planted(build: Build, name: str) -> None:
    defect = tomllib.loads((FOLDER / "defects" / f"{name}.toml").read_text())
    assert set(defect) == {"test", "file", "find", "replace", "why"}
    assert re.fullmatch(r"[a-z0-9_]+", name)
    assert (ROOT / defect["file"]).read_text().count(defect["find"]) == 1, "its text must occur once"
    assert defect["find"] != defect["replace"]
    assert defect["test"] in explored(build)


@pytest.mark.slow
def test_some_are_planted_and_caught(build: Build) -> None:
    tool("spin")
    arguments = ["--defects", *PLANTED]
    result = run(sys.executable, "-B", COMMAND, *arguments, env=build.environment(), timeout=SECONDS)
    assert result.returncode == 0, result.stdout
    assert result.stdout.splitlines()[-1] == f"{len(PLANTED)} caught, 0 missed"
