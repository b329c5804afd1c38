"""The allocators that can be measured, and how each is obtained.

hakmem is the build's own library, glibc is the absence of one, and the others come from package registries as
pinned in peers.toml. A named peer that is not available is an error, and is never replaced by another allocator. If
all peers were requested, it is reported and the others go on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.allocators import elf
from hakmem_lab.allocators.libraries import library_folder, library_obtain
from hakmem_lab.allocators.pins import LOCK, pinned_names, pinned_read
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError

BARE: dict[str, tuple[tuple[str, str], ...]] = {"ceiling": (), "null": (("WORKLOAD_SHARED_BLOCKS", "1"),)}
"""The allocators without checks, and the environment that their workloads need."""

GLIBC_CURRENT = (2, 42)
GLIBC_NOTE = (
    "understates current glibc: since 2.42 its caches per thread hold blocks up to 4 MiB, by a tunable"
)


@dataclass(frozen=True)
class Peer:
    name: str
    version: str
    library: Path | None
    """None: nothing is preloaded, and the C library's own malloc serves."""
    identity: str
    """The library's build id."""
    environment: tuple[tuple[str, str], ...] = ()
    origin: str = ""
    """Registry, package and its version."""
    flags: str = ""
    """How it was built."""
    note: str = ""
    """What a reader must know beside its figures, for example that it is older than its project's current version."""
    proof: str = ""
    """Which of its own functions must answer; a family of probe.py."""
    bare: bool = False
    """Without checks, from bench/ceiling/: it serves cells that were counted before, see measure/prepare.py."""
    programs: Path | None = None
    """The folder of workloads that contain it, see forms.py; it is then not preloaded."""


@dataclass(frozen=True)
class Missing:
    """A peer of the default set that cannot be measured."""

    name: str
    why: str


def glibc_version() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "unknown").removeprefix("glibc ")
    except ValueError:  # not glibc
        return "unknown"


def glibc_note(version: str) -> str:
    """Figures of an old glibc understate the current one."""
    numbers = version.split(".")[:2]
    if not all(number.isdecimal() for number in numbers):
        return ""
    return GLIBC_NOTE if tuple(map(int, numbers)) < GLIBC_CURRENT else ""


class PeerStore:
    """Peers by name."""

    def __init__(self, checkout: Checkout, lock: Path = LOCK) -> None:
        self.checkout = checkout
        self._lock = lock
        self._pinned = pinned_names(lock)

    @property
    def names(self) -> list[str]:
        return ["hakmem", *self.default_names, *BARE]

    @property
    def default_names(self) -> list[str]:
        """All that hakmem is compared with."""
        return ["glibc", *self._pinned]

    def obtain(self, name: str, place: str = "") -> Peer:
        """PLACE: its position among those that are obtained, reported if that takes long."""
        if name not in self.names:
            raise LabError(f"there is no peer '{name}'; known: {', '.join(self.names)}")
        match name:
            case "hakmem":
                return self._hakmem()
            case "ceiling" | "null":
                return self._bare(name)
            case "glibc":
                return self._glibc()
            case _:
                return self._pinned_peer(name, place)

    def obtain_default(self, without: Collection[str] = ()) -> tuple[list[Peer], list[Missing]]:
        """All available peers, and why the others are not; except those of WITHOUT."""
        peers: list[Peer] = []
        missing: list[Missing] = []
        pinned = [name for name in self._pinned if name not in without]
        for name in self.default_names:
            if name in without:
                continue
            place = f" ({pinned.index(name) + 1} of {len(pinned)})" if name in pinned else ""
            try:
                peers.append(self.obtain(name, place))
            except LabError as error:
                missing.append(Missing(name, str(error)))
        return peers, missing

    def _hakmem(self) -> Peer:
        library = self.checkout.library
        version = _hakmem_version(self.checkout)
        return Peer("hakmem", version, library, elf.build_id(library), origin="this checkout", proof="hakmem")

    def _bare(self, name: str) -> Peer:
        library = self.checkout.bare_library(name)
        version = _hakmem_version(self.checkout)
        identity = elf.build_id(library)
        return Peer(name, version, library, identity, BARE[name], origin="this checkout", bare=True)

    def _glibc(self) -> Peer:
        version = glibc_version()
        note = glibc_note(version)
        return Peer("glibc", version, None, "the C library", origin="this system", note=note, proof="glibc")

    def _pinned_peer(self, name: str, place: str) -> Peer:
        pinned = pinned_read(name, self._lock)
        if not library_folder(pinned, self.checkout.tools).is_dir():
            print(f"hakmem: obtaining {name}{place}", file=sys.stderr, flush=True)
        library = library_obtain(pinned, self.checkout.tools)
        return Peer(
            name,
            pinned.version,
            library,
            elf.build_id(library),
            pinned.environment,
            origin=str(pinned.package),
            flags=pinned.flags,
            note=pinned.note,
            proof=pinned.proof,
        )


def _hakmem_version(checkout: Checkout) -> str:
    numbers: list[str] = []
    header = checkout.root / "include/hakmem/hakmem.h"
    if header.is_file():
        for line in header.read_text().splitlines():
            match line.split():
                case ["#define", name, number] if name.startswith("HAKMEM_VERSION_"):
                    numbers.append(number)
    return ".".join(numbers[:3]) or "unknown"
