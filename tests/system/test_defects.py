"""The planted defects of tests/defects can be planted, and name tests that exist. ./hakmem defects plants them."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from toolbox import COMMAND, ROOT, Build, ctest_names, run, run_well, system_tests

FOLDER = ROOT / "tests/defects"
REQUIRED = {"item", "test", "file", "find", "replace", "why"}
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
ITEMS = 15
SYSTEM = "system: "


def read(name: str) -> dict[str, str | int]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())


def test_there_are_defects() -> None:
    assert NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_defect_can_be_planted(build: Build, name: str) -> None:
    defect = read(name)
    assert set(defect) >= REQUIRED
    assert set(defect) <= REQUIRED | {"preset"}
    assert re.fullmatch(r"[a-z0-9_]+", name)
    assert defect["item"] in range(ITEMS + 1)
    find, replace = str(defect["find"]), str(defect["replace"])
    assert (ROOT / str(defect["file"])).read_text().count(find) == 1, "its text must occur once"
    assert find != replace
    assert str(defect["why"]).strip()
    test = str(defect["test"])
    if test.startswith(SYSTEM):
        # An expression of pytest's -k; what comes after its first word may choose among cases.
        words = re.findall(r"\w+", test.removeprefix(SYSTEM))
        assert any(words[0] in name for name in system_tests())
    elif defect.get("preset", "release") == "release":
        assert test in ctest_names(build.directory)


# ---- the runner itself, on a checkout of its own -------------------------------------------------------

TINY_CMAKE = """
cmake_minimum_required(VERSION 3.22)
project(tiny C)
enable_testing()
add_executable(tiny_test tiny.c)
add_test(NAME tiny_test COMMAND tiny_test)
"""
TINY_COMMAND = '#!/bin/sh\ncd "$(dirname "$0")" && cmake -S . -B build >/dev/null && cmake --build build\n'
TINY_DEFECT = """
item = 0
test = "tiny_test"
file = "tiny.c"
find = '''{find}'''
replace = '''{replace}'''
why = "for the runner's sake"
"""
CAUGHT = {
    "wrong": ("return 0;", "return 1;"),
    "crash": ("return 0;", "__builtin_trap();"),
}
MISSED = {
    "harmless": ("return 0;", "return 0 + 0;"),
    "broken": ("return 0;", "return"),
    "gone": ("no such text", "return 1;"),
}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A checkout with one test and the runner."""
    (tmp_path / "tests/defects").mkdir(parents=True)
    (tmp_path / "tests/defects/run.py").write_bytes((FOLDER / "run.py").read_bytes())
    (tmp_path / "CMakeLists.txt").write_text(TINY_CMAKE)
    (tmp_path / "tiny.c").write_text("int main(void) {\n    return 0;\n}\n")
    (tmp_path / "hakmem").write_text(TINY_COMMAND)
    (tmp_path / "hakmem").chmod(0o755)
    run_well("git", "init", "--quiet", tmp_path)
    return tmp_path


def plant(tiny: Path, defects: dict[str, tuple[str, str]]) -> subprocess.CompletedProcess[str]:
    for name, (find, replace) in defects.items():
        text = TINY_DEFECT.format(find=find, replace=replace)
        (tiny / f"tests/defects/{name}.toml").write_text(text)
    return run(sys.executable, "-B", tiny / "tests/defects/run.py", "--report", tiny / "report.md")


def test_what_fails_is_caught(tiny: Path) -> None:
    result = plant(tiny, CAUGHT)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "2 caught, 0 missed"), result
    assert "| `wrong` |" in (tiny / "report.md").read_text()
    assert "return 0;" in (tiny / "tiny.c").read_text()


def test_what_passes_or_cannot_be_tried_is_missed(tiny: Path) -> None:
    result = plant(tiny, MISSED)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (1, "0 caught, 3 missed"), result
    assert "passed all the same" in result.stdout
    assert "does not build" in result.stdout
    assert "its text occurs 0 times" in result.stdout


def test_a_test_that_fails_anyway_catches_nothing(tiny: Path) -> None:
    (tiny / "tiny.c").write_text("int main(void) {\n    return 2;\n}\n")
    result = plant(tiny, {"wrong": ("return 2;", "return 3;")})
    assert (result.returncode, result.stdout.splitlines()[-1]) == (1, "0 caught, 1 missed"), result
    assert "does not pass without any defect" in result.stdout


def test_an_unknown_defect_is_named() -> None:
    result = run(COMMAND, "defects", "no_such_defect")
    assert result.returncode == 1
    assert "no_such_defect" in result.stderr


def test_a_list_that_nobody_reads_ends_without_a_word() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    line = [sys.executable, "-B", FOLDER / "run.py", "--list"]
    result = subprocess.run(line, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write_end)
    assert (result.returncode, result.stderr) == (-signal.SIGPIPE, "")


@pytest.mark.parametrize("jobs", [1, 2, 5, 1000])
def test_jobs_share_all_defects_and_each_test_is_of_one(jobs: int) -> None:
    sys.path.insert(0, str(FOLDER))
    try:
        from run import read_defects, shares_of
    finally:
        sys.path.remove(str(FOLDER))
    defects = read_defects()
    shares = shares_of(defects, jobs)
    assert len(shares) <= jobs and all(shares)
    assert sorted(one.name for share in shares for one in share) == [
        one.name for one in sorted(defects, key=lambda one: one.name)
    ]
    places = [{(one.preset, one.test) for one in share} for share in shares]
    assert sum(len(place) for place in places) == len(set().union(*places))
