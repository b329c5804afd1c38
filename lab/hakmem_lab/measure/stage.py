"""Private copies of what is measured, for the length of one run.

A rebuild during a run would otherwise change what is measured in its middle. The A/A arm is a second
copy of the same library under another name.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError


def copy_to_disk(source: Path, copy: Path) -> None:
    """Until a new file is written to disk, the kernel counts its pages as dirtied by whoever maps them."""
    try:
        shutil.copy(source, copy)
        with copy.open("rb+") as file:
            os.fsync(file.fileno())
    except OSError as error:
        raise LabError(f"cannot copy {source.name} aside: {error.strerror}") from error


@dataclass(frozen=True)
class Stage:
    folder: Path
    checkout: Checkout

    def program(self, name: str) -> Path:
        copy = self.folder / "bench" / name
        if not copy.exists():
            copy.parent.mkdir(exist_ok=True)
            copy_to_disk(self.checkout.program(name), copy)
        return copy

    def peer(self, peer: Peer, name: str | None = None) -> Peer:
        """The same peer from a copy of its library, or of the programs that hold it; under another name when one is given."""
        name = name or peer.name
        if peer.programs is not None:
            return self._programs_copied(peer, name)
        if peer.library is None:
            return peer
        copy = self.folder / name / peer.library.name
        copy.parent.mkdir()
        copy_to_disk(peer.library, copy)
        return replace(peer, name=name, library=copy)

    def _programs_copied(self, peer: Peer, name: str) -> Peer:
        assert peer.programs is not None
        folder = self.folder / name
        folder.mkdir()
        for file in peer.programs.iterdir():
            copy_to_disk(file, folder / file.name)
        library = None if peer.library is None else folder / peer.library.name
        return replace(peer, name=name, library=library, programs=folder)


@contextmanager
def ending_as_interrupted() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does: what was half made is removed, and what was started is ended."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def staged(checkout: Checkout) -> Iterator[Stage]:
    parent = checkout.tools / "lab"
    with ending_as_interrupted():
        try:
            parent.mkdir(parents=True, exist_ok=True)
            made = TemporaryDirectory(dir=parent, prefix="run-")
        except OSError as error:
            raise LabError(f"cannot write into {checkout.tools.name}: {error.strerror}") from error
        with made as folder:
            yield Stage(Path(folder), checkout)
