"""Registries and compilers without a network: small tools of their own, before all others in PATH."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from hakmem_lab.allocators.pins import Package, Pinned
from hakmem_lab.allocators.recipes import Recipe

LIBRARY = b"not really a library"
LIBRARY_SHA256 = hashlib.sha256(LIBRARY).hexdigest()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Tools:
    """PATH leads here first; each tool is a shell script. `alone`: PATH leads nowhere else."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, alone: bool = False) -> None:
        self.folder = folder
        folder.mkdir()
        monkeypatch.setenv("PATH", str(folder) if alone else f"{folder}:/usr/bin:/bin")

    def add(self, name: str, script: str) -> None:
        """It notes that it was called."""
        tool = self.folder / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.folder}/calls"\n{script}\n')
        tool.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


def wheel_make(path: Path, member: str = "lib/libsome.so.1") -> Path:
    with zipfile.ZipFile(path, "w") as package:
        package.writestr(member, LIBRARY)
    return path


def crate_make(path: Path, folder: str, **files: str) -> Path:
    """FILES by name, _ for the dot."""
    with tarfile.open(path, "w:gz") as sources:
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"{folder}/{name.replace('_', '.')}")
            entry.size = len(content)
            sources.addfile(entry, io.BytesIO(content))
    return path


def pinned_make(registry: str, package_sha256: str, recipe: Recipe | None = None) -> Pinned:
    library = recipe.library if recipe else "lib/libsome.so.1"
    return Pinned(
        "some",
        "some",
        "1.2",
        Package(registry, "some-sys", "0.1.2+3.4", package_sha256),
        library,
        None if recipe else LIBRARY_SHA256,
        recipe,
    )
