"""hakmem's own library in another form: of another preset, or of another commit.

    hakmem@pgo        hakmem@HEAD~3        hakmem@0123abcd:decay=never

A preset is used as ./hakmem build left it. A commit is built once, from its sources alone, and kept in
.tools/commits/ under its full name; CONTRIBUTING.md says what a profiling build is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hakmem_lab.allocators.tools import environment_plain, tool_run
from hakmem_lab.checkout import LIBRARY, Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING
from hakmem_lab.processes import program_run

MARK = "hakmem@"
BUILD_SECONDS = 900
GIT_SECONDS = 60
CMAKE_SECONDS = 60
CMAKE_LEAST = (3, 22)
PROFILING = "profiling"


def library_of(checkout: Checkout, what: str, profiling: bool = False) -> Path:
    """The library of the preset or commit WHAT. PROFILING: for a commit, with frame pointers and symbols."""
    if what in presets(checkout):
        return checkout.preset_library(what)
    return _commit_library(checkout, commit_find(checkout, what), profiling)


def presets(checkout: Checkout) -> dict[str, dict[str, str]]:
    """By name, with the options for CMake."""
    kept = json.loads((checkout.root / "CMakePresets.json").read_text(ENCODING))["configurePresets"]
    return {one["name"]: one.get("cacheVariables", {}) for one in kept if not one.get("hidden")}


def git(root: Path, *arguments: str) -> str:
    """The output of git; an error in one line if it fails."""
    try:
        done = program_run(["git", "-C", str(root), *arguments], GIT_SECONDS)
    except OSError as error:
        raise LabError(f"git cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise LabError(f"git {arguments[0]} did not end within {GIT_SECONDS} s") from None
    if done.status != 0:
        lines = done.errors.strip().splitlines() or [f"it exited with {done.status}"]
        raise LabError(f"git {arguments[0]}: {lines[0]}")
    return done.output


def commit_find(checkout: Checkout, what: str) -> str:
    """Its full hash."""
    if what and not what.startswith("-"):
        try:
            return git(checkout.root, "rev-parse", "--verify", "--quiet", f"{what}^{{commit}}").strip()
        except LabError:
            pass
    raise LabError(f"'{what}' is neither a preset nor a commit; presets: {', '.join(presets(checkout))}")


def _commit_library(checkout: Checkout, commit: str, profiling: bool) -> Path:
    folder = checkout.tools / "commits" / (f"{commit}-{PROFILING}" if profiling else commit)
    kept = folder / LIBRARY
    if kept.is_file():
        return kept
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix="making-") as scratch:
            built = _build(checkout, commit, profiling, Path(scratch))
            # Whole or not at all, whoever else makes it now.
            made = Path(scratch) / LIBRARY
            shutil.copy(built, made)
            made.rename(kept)
    except OSError as error:
        raise LabError(f"{commit[:12]}: {error.strerror or error}") from error
    return kept


def _build(checkout: Checkout, commit: str, profiling: bool, scratch: Path) -> Path:
    what, sources = f"hakmem at {commit[:12]}", scratch / "sources"
    sources.mkdir()
    archive = scratch / "sources.tar"
    git(checkout.root, "archive", f"--output={archive}", commit)
    tool_run(what, ["tar", "-xf", str(archive), "-C", str(sources)], scratch, BUILD_SECONDS)
    options = []
    if profiling:
        flags = presets(checkout)[PROFILING]["CMAKE_C_FLAGS_RELEASE"]
        options.append(f"-DCMAKE_C_FLAGS_RELEASE={flags} -ffile-prefix-map={sources}=.")
    return sources_build(checkout, what, sources, scratch, options)


def sources_build(
    checkout: Checkout, what: str, sources: Path, scratch: Path, options: Sequence[str] = ()
) -> Path:
    """The release library of SOURCES; build files go to SCRATCH. WHAT names it in error messages."""
    cmake, build = _cmake(checkout, what), scratch / "build"
    plain = ["-DCMAKE_BUILD_TYPE=Release", "-DHAK_TESTS=OFF", "-DHAK_BENCH=OFF", "-DHAK_TOOLS=OFF"]
    environment = environment_plain()
    steps = (
        [cmake, "-S", str(sources), "-B", str(build), *_generator(checkout), *plain, *options],
        [cmake, "--build", str(build), "--target", "hakmem", "--parallel", str(os.cpu_count() or 1)],
    )
    for step in steps:
        tool_run(what, step, scratch, BUILD_SECONDS, environment)
    return build / LIBRARY


def _cmake(checkout: Checkout, what: str) -> str:
    """Found in the same way as by ./hakmem."""
    for name in ("cmake", str(checkout.tools / "cmake/bin/cmake")):
        if shutil.which(name) and _is_new_enough(name):
            return name
    least = ".".join(map(str, CMAKE_LEAST))
    raise LabError(f"{what} needs CMake {least} or newer, which ./hakmem build obtains")


def _is_new_enough(cmake: str) -> bool:
    try:
        said = program_run([cmake, "--version"], CMAKE_SECONDS).output
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = re.match(r"cmake version (\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= CMAKE_LEAST


def _generator(checkout: Checkout) -> list[str]:
    """What CMake drives, chosen as by ./hakmem where CMAKE_GENERATOR is not set."""
    if shutil.which("ninja"):
        return ["-G", "Ninja"]
    if shutil.which("make") or shutil.which("gmake"):
        return []
    return ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={checkout.tools / 'cmake/bin/ninja'}"]
