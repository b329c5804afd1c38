from __future__ import annotations

import ctypes
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.allocators.recipes import Recipe, library_build
from hakmem_lab.errors import LabError
from lab_registries import Tools

COMMANDS = Recipe("", "out/libsome.so", (), ("mkdir out", "cp some.c out/libsome.so"))
COMPILED = Recipe(
    "code",
    "libsome.so",
    ("cc",),
    compile="cc -fPIC",
    link="cc -shared",
    sources=("*.c",),
    helpers=("helpers/**/*.c",),
    without=("_test",),
)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A library that needs one of its helpers; the other, and the test, cannot be linked into it."""
    code = tmp_path / "code"
    (code / "helpers/deep").mkdir(parents=True)
    (tmp_path / "some.c").touch()
    (code / "some.c").write_text("int help(void); int some(void) { return help() + 1; }")
    (code / "some_test.c").write_text("this is no C")
    (code / "helpers/deep/help.c").write_text("int help(void) { return 41; }")
    (code / "helpers/unneeded.c").write_text("int some(void) { return 0; }")
    return tmp_path


def test_the_projects_own_build_is_run(sources: Path) -> None:
    assert library_build("some", COMMANDS, sources) == sources / "out/libsome.so"


def test_the_number_of_processors_is_told(sources: Path) -> None:
    recipe = replace(COMMANDS, commands=("mkdir out", "sh -c 'echo -j{jobs} >out/libsome.so'"))
    jobs = len(os.sched_getaffinity(0))
    assert library_build("some", recipe, sources).read_text() == f"-j{jobs}\n"


def test_sources_are_compiled_and_of_helpers_what_is_needed(sources: Path) -> None:
    library = ctypes.CDLL(str(library_build("some", COMPILED, sources)))
    assert library.some() == 42


def test_the_users_flags_do_not_get_in(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFLAGS", "-O0")
    recipe = replace(COMMANDS, commands=("mkdir out", "sh -c 'echo \"$CFLAGS\" >out/libsome.so'"))
    assert library_build("some", recipe, sources).read_text() == "\n"


def test_a_compiler_that_fails_is_one_clear_line(sources: Path) -> None:
    (sources / "code/some.c").write_text("int some(void) { return nothing; }\nint more(void) { return no; }")
    with pytest.raises(LabError) as caught:
        library_build("some", COMPILED, sources)
    assert str(caught.value).startswith("some: cc exited with 1: some.c:1:")
    assert "\n" not in str(caught.value)


def test_a_build_without_its_library_is_an_error(sources: Path) -> None:
    recipe = replace(COMMANDS, commands=("true",))
    with pytest.raises(LabError, match=r"some: its build made no out/libsome\.so"):
        library_build("some", recipe, sources)


def test_a_pattern_without_sources_is_an_error(sources: Path) -> None:
    with pytest.raises(LabError, match=r"some: no source is named like \*\.cc"):
        library_build("some", replace(COMPILED, sources=("*.c", "*.cc")), sources)


def test_missing_tools_are_named_before_anything_is_built(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tools(tmp_path / "bin", monkeypatch, alone=True)
    with pytest.raises(LabError, match=r"some needs cmake, c\+\+; on Debian: apt-get install cmake g\+\+"):
        library_build("some", replace(COMMANDS, tools=("cmake", "c++")), sources)
