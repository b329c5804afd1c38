"""Private copies of what is measured, for the length of one run.

A rebuild during a run would otherwise change what is measured in its middle. The A/A arm is a second
copy of the same library under another name.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError

RUN = "run-"


def copy_to_disk(source: Path, copy: Path) -> None:
    """Until a new file is written to disk, the kernel counts its pages as dirtied by the process that maps them."""
    try:
        shutil.copy(source, copy)
        with copy.open("rb+") as file:
            os.fsync(file.fileno())
    except OSError as error:
        raise LabError(f"cannot copy {source.name} aside: {error.strerror}") from error


def name_quoted(name: str) -> str:
    """NAME without what LD_PRELOAD cannot hold; different names stay different."""
    return quote(name, safe="+@=,")


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
        """The same peer from a copy of its library, or of the programs that contain it; under another name if one
        is given."""
        name = name or peer.name
        if peer.programs is not None:
            return self._programs_copied(peer, name)
        if peer.library is None:
            return peer
        copy = self.folder / name_quoted(name) / name_quoted(peer.library.name)
        copy.parent.mkdir()
        copy_to_disk(peer.library, copy)
        return replace(peer, name=name, library=copy)

    def _programs_copied(self, peer: Peer, name: str) -> Peer:
        assert peer.programs is not None
        folder = self.folder / name_quoted(name)
        folder.mkdir()
        for file in peer.programs.iterdir():
            copy_to_disk(file, folder / file.name)
        library = None if peer.library is None else folder / peer.library.name  # of a build of ours
        return replace(peer, name=name, library=library, programs=folder)


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """BlockingIOError if another process has it and WAIT is false."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def _dead_clear(parent: Path) -> None:
    """Removes the folders that killed runs left."""
    for folder in parent.glob(f"{RUN}*"):
        with suppress(OSError), locked(folder, wait=False):  # it is in use, or another user's
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def staged(checkout: Checkout) -> Iterator[Stage]:
    """The run's folder is locked while the run lives."""
    parent = checkout.tools / "lab"
    if set(" :") & set(str(parent.resolve())):
        raise LabError(
            f"{checkout.root}: LD_PRELOAD cannot name a library there: its path holds a space or a colon"
        )
    with ExitStack() as stack:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            with locked(parent):  # nobody clears away what is made and not locked yet
                _dead_clear(parent)
                folder = Path(stack.enter_context(TemporaryDirectory(dir=parent, prefix=RUN)))
                stack.enter_context(locked(folder))
        except OSError as error:
            raise LabError(f"cannot write into {checkout.tools.name}: {error.strerror}") from error
        yield Stage(folder, checkout)
