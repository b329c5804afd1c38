"""A checkout: what ./hakmem sets up in it, what it says where it cannot, and what of it stays when others are at it."""

import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from toolbox import (
    COMMAND,
    changes_of,
    environment,
    only_line,
    run,
    run_well,
    variables_of_the_script,
)


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with what a minimal system has, and neither compiler nor CMake."""
    folder = tmp_path / "bin"
    folder.mkdir()
    names = "awk cat cmp dirname find flock grep head id mkdir mv nproc paste readlink rm sed sh tail"
    for name in names.split():
        found = run_well("sh", "-c", f"command -v {name}").strip()
        (folder / name).symlink_to(Path(found).resolve() if name != "awk" else found)
    return folder


@pytest.fixture
def clean_checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing was ever built."""
    target = tmp_path / "checkout"
    target.mkdir()
    source = COMMAND.parent
    for name in (
        "hakmem",
        "CMakeLists.txt",
        "CMakePresets.json",
        "cmake",
        "include",
        "src",
        "tools",
        "tests",
        "bench",
    ):
        run_well("cp", "-R", source / name, target)
    return target


def test_says_what_is_missing_when_it_may_not_install(bare_path: Path, clean_checkout: Path) -> None:
    (bare_path / "apt-get").write_text("#!/bin/sh\nexit 99\n")
    (bare_path / "apt-get").chmod(0o755)
    env = environment(PATH=str(bare_path), HAKMEM_NO_INSTALL="1", CC=None, CXX=None)
    result = run(clean_checkout / "hakmem", "run", "--", "true", env=env)
    assert result.returncode == 125
    line = only_line(result.stderr)
    assert "run this as root: apt-get install" in line
    assert all(f" {package}" in line for package in ("g++", "cmake", "make"))
    assert run(clean_checkout / "hakmem", "build", env=env).returncode == 1


def test_says_what_is_missing_where_there_is_no_apt(bare_path: Path, clean_checkout: Path) -> None:
    env = environment(PATH=str(bare_path), HAKMEM_NO_INSTALL="1", CC=None, CXX=None)
    result = run(clean_checkout / "hakmem", "build", env=env)
    assert result.returncode == 1
    assert "package manager" in only_line(result.stderr)


def test_a_build_that_fails_shows_its_end(clean_checkout: Path) -> None:
    (clean_checkout / "src/base/broken.c").write_text("#error planted here\n")
    result = run(clean_checkout / "hakmem", "run", "--", "true")
    assert result.returncode == 125
    assert "planted here" in result.stderr
    assert "hakmem-build.log" in result.stderr.splitlines()[-1]
    assert not result.stdout


CMAKE = """#!/bin/sh
if [ "$1" = --version ]; then echo "cmake version 3.30.0"; else echo "$*" >>"$0.asked"; fi
"""


def test_a_build_is_strict_only_where_it_is_asked_to_be(clean_checkout: Path, tmp_path: Path) -> None:
    """Also after one that was: CMake remembers what it was told."""
    cmake = tmp_path / "bin/cmake"
    cmake.parent.mkdir()
    cmake.write_text(CMAKE)
    cmake.chmod(0o755)
    for strict in ("1", None):
        env = environment(PATH=f"{cmake.parent}:{os.environ['PATH']}", HAKMEM_STRICT=strict)
        run_well(clean_checkout / "hakmem", "build", env=env)
    asked = (tmp_path / "bin/cmake.asked").read_text()
    assert re.findall("-DHAK_WERROR=[A-Z]+", asked) == ["-DHAK_WERROR=ON", "-DHAK_WERROR=OFF"]


@pytest.mark.parametrize(("command", "status"), [("run", 125), ("doctor", 2), ("build", 1)])
def test_a_relative_path_from_a_folder_that_was_deleted(tmp_path: Path, command: str, status: int) -> None:
    """Nothing is looked for, or set up, in the wrong place."""
    run_well("cp", COMMAND, tmp_path)
    (tmp_path / "gone").mkdir()
    script = f"cd gone && rmdir ../gone && exec sh ../hakmem {command}"
    result = run("sh", "-c", script, env=environment(HAKMEM_NO_INSTALL="1"), cwd=tmp_path)
    assert result.returncode == status
    assert result.stderr.splitlines()[-1].startswith("hakmem: the checkout of ../hakmem is not found from ")
    assert [one.name for one in tmp_path.iterdir()] == ["hakmem"]


@pytest.mark.slow
def test_builds_by_itself_and_again_after_a_change(clean_checkout: Path) -> None:
    command = clean_checkout / "hakmem"
    assert run_well(command, "run", "--", "echo", "one") == "one\n"
    library = clean_checkout / "build/libhakmem.so"
    first = library.stat().st_mtime_ns
    assert run(command, "run", "--", "echo", "two").stderr == ""
    assert library.stat().st_mtime_ns == first
    (clean_checkout / "src/base/extra.c").write_text(
        "int extra_for_test(void);\nint extra_for_test(void) { return 1; }\n"
    )
    assert run_well(command, "run", "--", "echo", "three") == "three\n"
    assert library.stat().st_mtime_ns > first


def children_seconds() -> float:
    """Processor time, on which other programs have little influence."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
def test_adds_little_to_the_start(clean_checkout: Path) -> None:
    command = clean_checkout / "hakmem"
    run_well(command, "run", "--", "true")
    before = children_seconds()
    for _ in range(5):
        run_well(command, "run", "--", "true")
    assert (children_seconds() - before) / 5 < 0.1


@pytest.fixture
def foreign_checkout() -> Iterator[Path]:
    """One that only its owner may write: built, and with an environment whose Python says what it was asked."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are private
        target = Path(name)
        for folder in ("src", "build", "build-profiling", ".tools", ".venv/bin"):
            (target / folder).mkdir(parents=True)
        run_well("cp", COMMAND, COMMAND.parent / "requirements.txt", target)
        run_well("cp", target / "requirements.txt", target / ".venv/requirements.installed")
        (target / ".venv/bin/python").write_text('#!/bin/sh\necho "$*"\n')
        (target / ".venv/bin/python").chmod(0o755)
        (target / "src/a.c").touch()
        (target / "build/.lock").touch()
        for folder in ("build", "build-profiling"):
            (target / folder / ".built").touch()
        closed = [target, target / "build", target / "build-profiling", target / ".tools"]
        for path in closed:
            path.chmod(0o555)
        yield target
        for path in closed:
            path.chmod(0o755)


def as_a_guest(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """By somebody who may not write there: for root that is another user."""
    env = environment(HAKMEM_NO_INSTALL="1")
    user = "nobody" if os.geteuid() == 0 else None
    return run(checkout / "hakmem", *arguments, env=env, cwd=Path("/"), user=user)


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["doctor"], "doctor"),
        (["help", "ab"], "ab --help"),
        (["where", "--help"], "where --help"),
        (["where", "-h"], "where -h"),
        (["where", "--arm", "hakmem"], "where --arm hakmem"),  # the library of a complete build
    ],
)
def test_the_laboratory_of_a_checkout_that_cannot_be_written(
    foreign_checkout: Path, arguments: list[str], asked: str
) -> None:
    result = as_a_guest(foreign_checkout, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("-I -B ")
    assert result.stdout.endswith(f" {foreign_checkout.resolve()}/lab {asked}\n")


SAYS = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:], sys.flags.utf8_mode]))"


def test_the_laboratory_changes_no_variable_and_imports_nothing_from_where_it_is_asked(
    tmp_path: Path,
) -> None:
    checkout, here = tmp_path / "check out", tmp_path / "here"
    for folder in (checkout / ".venv/bin", checkout / "lab/hakmem_lab", here):
        folder.mkdir(parents=True)
    run_well("cp", COMMAND, COMMAND.parent / "requirements.txt", checkout)
    run_well("cp", checkout / "requirements.txt", checkout / ".venv/requirements.installed")
    (checkout / ".venv/bin/python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (checkout / ".venv/bin/python").chmod(0o755)
    (checkout / "lab/hakmem_lab/__init__.py").touch()
    (checkout / "lab/hakmem_lab/__main__.py").write_text(SAYS)
    for name in ("json", "runpy", "hakmem_lab"):
        (here / f"{name}.py").write_text("raise SystemExit(99)")
    locale = dict.fromkeys(("LANG", "LC_ALL", "LC_CTYPE"))
    python = {"PYTHONPATH": str(here), "PYTHONUTF8": None, "PYTHONDONTWRITEBYTECODE": None}
    given = environment(**python, **locale, **variables_of_the_script())
    seen, arguments, utf8 = json.loads(run_well(checkout / "hakmem", "help", "ab", env=given, cwd=here))
    assert changes_of(given, seen) == {}
    assert (arguments, utf8) == (["ab", "--help"], 1)
    assert not list(checkout.rglob("__pycache__"))


def test_a_build_that_is_out_of_date_and_cannot_be_written(foreign_checkout: Path) -> None:
    now = time.time() + 60
    os.utime(foreign_checkout / "src/a.c", (now, now))
    result = as_a_guest(foreign_checkout, "doctor")
    assert result.returncode == 2
    assert f"{foreign_checkout}/build cannot be written" in only_line(result.stderr)
    assert as_a_guest(foreign_checkout, "run", "--", "true").returncode == 125


@pytest.mark.parametrize("lacking", ["requirements.installed", "bin/python"])
def test_an_environment_that_is_missing_and_cannot_be_written(foreign_checkout: Path, lacking: str) -> None:
    (foreign_checkout / ".venv" / lacking).unlink()
    result = as_a_guest(foreign_checkout, "doctor")
    assert result.returncode == 2
    only_line(result.stderr)


PYTHON = """#!/bin/sh
case "$*" in
    -c* | "-I -c"*) exec {real} "$@" ;;
    "-I -m venv "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    "-I -m pip "*)
        at=$(dirname "$0")
        ls {checkout}/.venv/bin >>{checkout}/seen
        printf '#!%s/python\n' "$at" >"$at/script"
        [ ! -e {checkout}/refuse ] ;;
    *) echo "anew: $*" ;;
esac
"""


@pytest.fixture
def outdated_checkout(tmp_path: Path) -> Path:
    """Its environment is of other requirements; a Python that only seems to make another comes first in bin."""
    target = tmp_path / "check out"
    for folder in (".venv/bin", "bin"):
        (target / folder).mkdir(parents=True)
    run_well("cp", COMMAND, COMMAND.parent / "requirements.txt", target)
    (target / ".venv/requirements.installed").touch()
    (target / ".venv/bin/old").touch()
    quoted = shlex.quote(str(target))
    (target / "bin/python3").write_text(PYTHON.format(real=shlex.quote(sys.executable), checkout=quoted))
    (target / "bin/python3").chmod(0o755)
    return target


def lab_start(checkout: Path, here: Path | None = None) -> subprocess.Popen[str]:
    env = environment(PATH=f"{checkout}/bin:{os.environ['PATH']}")
    line = [checkout / "hakmem", "help", "ab"]
    return subprocess.Popen(line, env=env, cwd=here, stdout=subprocess.PIPE, text=True)


def test_an_environment_whose_interpreter_is_gone_is_made_anew(outdated_checkout: Path) -> None:
    run_well("cp", outdated_checkout / "requirements.txt", outdated_checkout / ".venv/requirements.installed")
    (outdated_checkout / ".venv/bin/python").symlink_to("/nowhere/python3")
    assert lab_start(outdated_checkout).communicate(timeout=60)[0].startswith("anew: ")


def test_an_environment_is_replaced_when_the_new_one_is_whole_and_once(outdated_checkout: Path) -> None:
    both = [lab_start(outdated_checkout) for _ in range(2)]
    for one in both:
        said = one.communicate(timeout=60)[0]
        assert said.startswith("anew: -I -B ") and said.endswith("/lab ab --help\n")
    assert (outdated_checkout / "seen").read_text() == "old\n"
    kept = outdated_checkout / ".venv"
    assert (kept / "bin/script").read_text() == f"#!{kept}/bin/python\n"
    assert not (kept / "bin/old").exists()
    assert list((outdated_checkout / ".tools").glob(".venv.new*")) == []


def test_what_is_set_up_imports_nothing_from_where_it_is_asked(
    outdated_checkout: Path, tmp_path: Path
) -> None:
    """No module of the folder is run, by root perhaps, nor taken for a Python that lacks something."""
    here, marker = tmp_path / "here", tmp_path / "marker"
    here.mkdir()
    for name in ("ensurepip", "pathlib", "random", "venv"):
        (here / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')\nraise SystemExit(99)\n")
    process = lab_start(outdated_checkout, here)
    assert process.communicate(timeout=60)[0].startswith("anew: -I -B ")
    assert not marker.exists()


def test_an_environment_that_cannot_be_had_leaves_the_old_one(outdated_checkout: Path) -> None:
    (outdated_checkout / "refuse").touch()
    process = lab_start(outdated_checkout)
    assert (process.communicate(timeout=60)[0], process.returncode) == ("", 2)
    assert [one.name for one in (outdated_checkout / ".venv/bin").iterdir()] == ["old"]
    assert list((outdated_checkout / ".tools").glob(".venv.new*")) == []


def test_a_build_directory_without_a_build_is_refused(tmp_path: Path) -> None:
    env = environment(HAKMEM_BUILD_DIR=str(tmp_path))
    result = run(COMMAND, "run", "--", "true", env=env)
    assert result.returncode == 125
    assert str(tmp_path) in only_line(result.stderr)
