"""The system's own tools that are needed to obtain a peer, and the message when one fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from hakmem_lab.errors import LabError
from hakmem_lab.processes import program_run

PACKAGES = {
    "addr2line": "binutils",
    "apt-get": "apt",
    "ar": "binutils",
    "c++": "g++",
    "cargo": "cargo",
    "cc": "gcc libc6-dev",
    "cmake": "cmake",
    "dpkg-deb": "dpkg",
    "make": "make",
    "nm": "binutils",
    "objdump": "binutils",
}
"""Debian's package for each."""


def tools_check(what: str, tools: Iterable[str]) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        packages = " ".join(PACKAGES[tool] for tool in missing)
        raise LabError(f"{what} needs {', '.join(missing)}; on Debian: apt-get install {packages}")


def environment_plain() -> dict[str, str]:
    """For builds, without the user's compiler flags."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def tool_run(
    what: str, command: Sequence[str], folder: Path, limit: float, environment: dict[str, str] | None = None
) -> None:
    """Fails with one line: the last error that the tool reported, or its last line of output."""
    tool = Path(command[0]).name
    try:
        done = program_run(command, limit, cwd=folder, env=environment)
    except OSError as error:
        raise LabError(f"{what}: {tool} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise LabError(f"{what}: {tool} did not end within {limit:g} s") from None
    if done.status != 0:
        said = _reason(done.errors) or _reason(done.output)
        raise LabError(f"{what}: {tool} exited with {done.status}{said and f': {said}'}")


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line.lower() or line.startswith("E: ")]
    # A compiler's first error explains the others; a package tool's last one is its summary, its first the cause.
    return errors[0] if errors else lines[-1] if lines else ""
