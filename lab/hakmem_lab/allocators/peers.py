"""The allocators that can be measured, and how each is obtained.

hakmem is the build's own library, glibc is the absence of one, and the others come from package
registries at the versions and hashes of peers.toml: as a library inside a Python package, or built from the
sources inside a crate. A peer that cannot be had is an error, never
another allocator in its place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hakmem_lab.allocators import elf
from hakmem_lab.allocators.crates import crate_obtain, crate_pinned_read
from hakmem_lab.checkout import Checkout, machine
from hakmem_lab.errors import LabError

LOCK = Path(__file__).with_name("peers.toml")
DOWNLOAD_SECONDS = 300


@dataclass(frozen=True)
class Peer:
    name: str
    version: str
    library: Path | None
    """None: nothing is preloaded, the C library's own malloc serves."""
    identity: str
    """The library's build id."""
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Pinned:
    """One entry of the lock for this kind of machine."""

    name: str
    package: str
    version: str
    member: str
    package_sha256: str
    library_sha256: str


def pinned_read(name: str, lock: Path = LOCK) -> Pinned:
    entry = tomllib.loads(lock.read_text())[name]
    hashes = entry.get(machine())
    if hashes is None:
        raise LabError(f"{name} {entry['version']} is not pinned for {machine()}")
    return Pinned(name, entry["package"], entry["version"], entry["member"], **hashes)


def pinned_obtain(pinned: Pinned, tools: Path) -> Path:
    """The library inside the checkout, fetched on first use, its hash checked on every use."""
    folder = tools / "peers" / f"{pinned.name}-{pinned.version}"
    library = folder / Path(pinned.member).name
    if not library.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as scratch:
            archive = _download(pinned, Path(scratch))
            unpacked = Path(scratch) / library.name
            with zipfile.ZipFile(archive) as package:
                unpacked.write_bytes(package.read(pinned.member))
            unpacked.rename(library)
    found = elf.sha256(library)
    if found != pinned.library_sha256:
        library.unlink()
        raise LabError(
            f"{pinned.name}: the library's SHA-256 is {found}, pinned is {pinned.library_sha256};"
            " it was removed, run again to fetch it anew"
        )
    return library


def _download(pinned: Pinned, folder: Path) -> Path:
    """pip checks the package's hash itself."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{pinned.package}=={pinned.version} --hash=sha256:{pinned.package_sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--dest", str(folder), "--requirement", str(wanted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise LabError(f"{pinned.name}: no answer from pip in {DOWNLOAD_SECONDS} s") from None
    archives = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not archives:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"pip exited with {done.returncode}"
        raise LabError(f"{pinned.name} ({pinned.package} {pinned.version}) cannot be had: {reason}")
    return archives[0]


def glibc_version() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "unknown").removeprefix("glibc ")
    except ValueError:  # not glibc
        return "unknown"


class PeerStore:
    """Peers by name."""

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        self._makers: dict[str, Callable[[], Peer]] = {
            "hakmem": self._hakmem,
            "glibc": self._glibc,
            "mimalloc3": lambda: self._mimalloc3("mimalloc3"),
            "mimalloc3-nothp": lambda: self._mimalloc3("mimalloc3-nothp", ("MIMALLOC_ALLOW_THP", "0")),
            "jemalloc": self._jemalloc,
        }

    @property
    def names(self) -> list[str]:
        return list(self._makers)

    def obtain(self, name: str) -> Peer:
        if name not in self._makers:
            raise LabError(f"there is no peer '{name}'; known: {', '.join(self.names)}")
        return self._makers[name]()

    def _hakmem(self) -> Peer:
        library = self._checkout.library
        version = _hakmem_version(self._checkout)
        return Peer("hakmem", version, library, elf.build_id(library))

    def _glibc(self) -> Peer:
        version = glibc_version()
        return Peer("glibc", version, None, "the C library")

    def _mimalloc3(self, name: str, *environment: tuple[str, str]) -> Peer:
        pinned = pinned_read("mimalloc3")
        library = pinned_obtain(pinned, self._checkout.tools)
        return Peer(name, pinned.version, library, elf.build_id(library), environment)

    def _jemalloc(self) -> Peer:
        pinned = crate_pinned_read("jemalloc", LOCK)
        library = crate_obtain(pinned, self._checkout.tools)
        return Peer("jemalloc", pinned.short_version, library, elf.build_id(library))


def _hakmem_version(checkout: Checkout) -> str:
    numbers: list[str] = []
    header = checkout.root / "include/hakmem/hakmem.h"
    if header.is_file():
        for line in header.read_text().splitlines():
            match line.split():
                case ["#define", name, number] if name.startswith("HAKMEM_VERSION_"):
                    numbers.append(number)
    return ".".join(numbers[:3]) or "unknown"
