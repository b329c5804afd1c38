"""Where things are in the checkout, and names for them that contain no machine's path."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hakmem_lab.errors import LabError

LIBRARY = "libhakmem.so"
RESULTS_VARIABLE = "LAB_RESULTS_DIR"
"""For tests, whose runs must not be mistaken for measurements."""


@dataclass(frozen=True)
class Checkout:
    root: Path
    build: Path
    kept: Path | None = None
    """Where runs are kept, if not in bench_results."""

    @classmethod
    def find(cls, build: Path | None = None) -> Checkout:
        root = Path(__file__).resolve().parents[2]
        kept = os.environ.get(RESULTS_VARIABLE)
        return cls(root, (build or root / "build").resolve(), Path(kept).resolve() if kept else None)

    @property
    def tools(self) -> Path:
        return self.root / ".tools"

    def results(self, kind: str) -> Path:
        """Where the runs of one kind of study are kept, a folder each."""
        return (self.kept or self.root / "bench_results") / kind

    def results_new(self, kind: str) -> Path:
        """A new folder for the run that begins now, also if two begin in the same second."""
        place = self.results(kind)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:  # a file, or a link that leads nowhere
            raise LabError(f"{path_here(Path(error.filename))} is no folder, and results go there") from None
        moment, number = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"), 1
        folder = place / moment
        while True:
            try:
                folder.mkdir()
            except FileExistsError:
                number += 1
                folder = folder.with_name(f"{moment}-{number}")
            else:
                return folder

    @property
    def library(self) -> Path:
        return self._built(LIBRARY)

    def program(self, name: str) -> Path:
        """A program of bench/."""
        return self._built(f"bench/{name}")

    def preset_library(self, preset: str) -> Path:
        """As ./hakmem build PRESET leaves it."""
        folder = self.root / ("build" if preset == "release" else f"build-{preset}")
        path = folder / LIBRARY
        if not path.is_file():
            raise LabError(f"{self.shown(path)} is not there: run ./hakmem build {preset} first")
        return path

    def bare_library(self, name: str) -> Path:
        """A library of bench/ceiling/."""
        return self._built(f"bench/lib{name}.so")

    def _built(self, name: str) -> Path:
        path = self.build / name
        if path.is_file():
            return path
        if self.build != self.root / "build" and not (self.build / LIBRARY).is_file():
            raise LabError(f"{path_here(self.build)} holds no build: {LIBRARY} is not there")
        raise LabError(f"{self.shown(path)} is not there: run ./hakmem build first")

    def shown(self, path: Path) -> str:
        """The path as a page for other readers may contain it: relative to the checkout, or the bare name."""
        if path.is_relative_to(self.root):
            return str(path.relative_to(self.root))
        return path.name


def path_here(path: Path) -> str:
    """The path as the terminal shows it: usable from the current folder, also if that was deleted."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return str(path)
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def machine() -> str:
    return platform.machine()
