"""hakmem@PRESET and hakmem@COMMIT."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hakmem_lab.allocators import builds
from hakmem_lab.allocators.arms import arm_parse
from hakmem_lab.allocators.peers import PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError

ROOT = Path(__file__).resolve().parents[2]

TINY_CMAKE = """\
cmake_minimum_required(VERSION 3.22)
project(tiny C)
add_library(hakmem SHARED tiny.c)
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Checkout:
    """A checkout whose library is one function."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    root = tmp_path / "checkout"
    root.mkdir()
    shutil.copy(ROOT / "CMakePresets.json", root)
    (root / "CMakeLists.txt").write_text(TINY_CMAKE)
    for value in ("1", "2"):
        (root / "tiny.c").write_text(f"int tiny(void) {{ return {value}; }}\n")
        for command in (["init", "--quiet"], ["add", "-A"], ["commit", "--quiet", "-m", f"value {value}"]):
            identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
            subprocess.run(["git", "-C", root, *identity, *command], check=True)
    return Checkout(root, root / "build")


def test_a_commit_is_built_once_and_kept(tiny: Checkout) -> None:
    old, new = (builds.library_of(tiny, what) for what in ("HEAD~1", "HEAD"))
    assert old != new and old.is_file() and new.is_file()
    assert old.read_bytes() != new.read_bytes()
    stamp = old.stat().st_mtime_ns
    assert builds.library_of(tiny, "HEAD~1").stat().st_mtime_ns == stamp
    assert [path.name for path in old.parent.iterdir()] == [builds.LIBRARY]


def test_a_profiling_build_of_a_commit_has_lines(tiny: Checkout) -> None:
    plain, profiling = (builds.library_of(tiny, "HEAD", profiling=one) for one in (False, True))
    assert b".debug_info" in profiling.read_bytes()
    assert b".debug_info" not in plain.read_bytes()


def test_a_cmake_that_is_too_old_is_passed_over(
    tiny: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = shutil.which("cmake")
    assert good is not None
    old, brought = tmp_path / "path/cmake", tiny.tools / "cmake/bin/cmake"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho cmake version 3.18.4\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    with pytest.raises(LabError, match=r"needs CMake 3\.22 or newer"):
        builds.library_of(tiny, "HEAD")
    brought.parent.mkdir(parents=True)
    brought.symlink_to(good)
    assert builds.library_of(tiny, "HEAD").is_file()


def test_without_make_the_ninja_that_was_brought_is_used(
    tiny: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, brought = tmp_path / "path", tiny.tools / "cmake/bin/ninja"
    ninja = shutil.which("ninja")
    if ninja is None:
        pytest.skip("ninja is not installed")
    tools.mkdir()
    for tool in ("cmake", "git", "tar", "sh", "cc", "as", "ld", "ar", "ranlib", "uname"):
        found = shutil.which(tool)
        if found is not None:
            (tools / tool).symlink_to(found)
    brought.parent.mkdir(parents=True)
    brought.symlink_to(ninja)
    monkeypatch.setenv("PATH", str(tools))
    assert builds.library_of(tiny, "HEAD").is_file()


def test_what_does_not_build_is_one_line_and_leaves_nothing(tiny: Checkout) -> None:
    (tiny.root / "tiny.c").write_text("#error planted here\n")
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", tiny.root, *identity, "commit", "--quiet", "-am", "broken"], check=True)
    with pytest.raises(LabError, match="planted here") as caught:
        builds.library_of(tiny, "HEAD")
    assert "\n" not in str(caught.value)
    assert not list(tiny.tools.glob("commits/*/*"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hakmem@nosuch", "'nosuch' is neither a preset nor a commit; presets: release, checked, "),
        ("hakmem@", "'' is neither a preset nor a commit"),
        ("hakmem@--help", "'--help' is neither a preset nor a commit"),
        ("hakmem@pgo", "build-pgo/libhakmem.so is not there: run ./hakmem build pgo first"),
        ("hakmem@nosuch/branch", "'nosuch/branch' is neither a preset nor a commit"),
    ],
)
def test_what_cannot_be_an_arm_is_one_line(tiny: Checkout, text: str, message: str) -> None:
    with pytest.raises(LabError) as caught:
        arm_parse(text, PeerStore(tiny))
    assert str(caught.value).startswith(message)


def test_another_build_takes_options_too(tiny: Checkout) -> None:
    peer = arm_parse("hakmem@HEAD:decay=never", PeerStore(tiny))
    assert peer.name == "hakmem@HEAD:decay=never"
    assert dict(peer.environment) == {"HAKMEM_DECAY": "never"}
    assert peer.library is not None and peer.library.name == builds.LIBRARY
