"""A peer that is built from the C sources inside a crate.

cargo fetches the crate, from wherever its own configuration says, and the crate's hash is the pinned one or nothing
is built. Compilers differ, so the library cannot be pinned; its hash is noted when it is built and checked on
every use.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hakmem_lab.allocators import elf
from hakmem_lab.errors import LabError

FETCH_SECONDS = 300
BUILD_SECONDS = 900
TOOLS = {"cargo": "cargo", "make": "make", "tar": "tar", "cc": "gcc libc6-dev", "c++": "g++"}
"""What obtaining and building needs, and Debian's package of each."""
BUILT = "built.txt"


@dataclass(frozen=True)
class PinnedCrate:
    """One entry of the lock: a version of jemalloc as a crate carries it."""

    name: str
    crate: str
    version: str
    crate_sha256: str

    @property
    def source_version(self) -> str:
        """The library's own version, which the crate's has after the plus sign."""
        return self.version.partition("+")[2]

    @property
    def short_version(self) -> str:
        return self.source_version.partition("-")[0]


def crate_pinned_read(name: str, lock: Path) -> PinnedCrate:
    return PinnedCrate(name, **tomllib.loads(lock.read_text())[name])


def crate_obtain(pinned: PinnedCrate, tools: Path) -> Path:
    """The library inside the checkout, fetched and built on first use."""
    folder = tools / "peers" / f"{pinned.name}-{pinned.short_version}"
    library = folder / "libjemalloc.so.2"
    note = folder / BUILT
    if not (library.is_file() and note.is_file()):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as scratch:
            sources = _unpack(pinned, _fetch(pinned, Path(scratch)), Path(scratch))
            _build(pinned, sources).rename(library)
        note.write_text(_note(pinned, library))
    if note.read_text() != _note(pinned, library):
        library.unlink()
        raise LabError(
            f"{pinned.name}: the library is not the one that was built from the pinned crate; it was removed,"
            " run again to build it anew"
        )
    return library


def _note(pinned: PinnedCrate, library: Path) -> str:
    return f"crate {pinned.crate_sha256}\nlibrary {elf.sha256(library)}\n"


def _run(
    pinned: PinnedCrate, command: list[str], folder: Path, environment: dict[str, str], limit: int
) -> None:
    """Fails with the last line that the command said."""
    what = f"{pinned.name} ({pinned.crate} {pinned.version})"
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"{what}: {Path(command[0]).name} did not end within {limit} s") from None
    except OSError as error:
        raise LabError(f"{what}: {Path(command[0]).name} cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        said = f": {lines[-1].strip()}" if lines else ""
        raise LabError(f"{what}: {Path(command[0]).name} exited with {done.returncode}{said}")


def tools_check(name: str) -> None:
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        raise LabError(f"{name} is built from a crate; on Debian: apt-get install {' '.join(missing)}")


def cargo_home() -> Path:
    return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")


def _fetch(pinned: PinnedCrate, folder: Path) -> Path:
    """The crate's archive in cargo's cache, by way of an empty package that depends on just this version."""
    tools_check(pinned.name)
    manifest = folder / "Cargo.toml"
    number = pinned.version.partition("+")[0]
    manifest.write_text(
        '[package]\nname = "peer"\nversion = "0.0.0"\nedition = "2021"\n\n[workspace]\n\n'
        f'[dependencies]\n{pinned.crate} = "={number}"\n'
    )
    (folder / "src").mkdir()
    (folder / "src/lib.rs").touch()
    _run(pinned, ["cargo", "fetch", "--quiet"], folder, dict(os.environ), FETCH_SECONDS)
    archives = list((cargo_home() / "registry/cache").glob(f"*/{pinned.crate}-{pinned.version}.crate"))
    if not archives:
        raise LabError(f"{pinned.name}: cargo has not brought {pinned.crate} {pinned.version}")
    hashes = {elf.sha256(archive): archive for archive in archives}
    if pinned.crate_sha256 not in hashes:
        found = ", ".join(hashes)
        raise LabError(f"{pinned.name}: the crate's SHA-256 is {found}, pinned is {pinned.crate_sha256}")
    return hashes[pinned.crate_sha256]


def _unpack(pinned: PinnedCrate, archive: Path, folder: Path) -> Path:
    """The sources, with the configure script that the crate keeps beside them."""
    _run(pinned, ["tar", "-xzf", str(archive), "-C", str(folder)], folder, dict(os.environ), FETCH_SECONDS)
    root = folder / f"{pinned.crate}-{pinned.version}"
    shutil.copy(root / "configure/configure", root / "jemalloc/configure")
    return root / "jemalloc"


def _build(pinned: PinnedCrate, sources: Path) -> Path:
    """With default options, whatever the user's environment says. Without a version of its own configure would ask
    the git checkout around it."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    configure = [
        "./configure",
        f"--prefix={sources / 'installed'}",
        f"--with-version={pinned.source_version}",
    ]
    make = ["make", f"-j{os.cpu_count() or 1}", "build_lib_shared"]
    for command in (configure, make):
        _run(pinned, command, sources, environment, BUILD_SECONDS)
    return sources / "lib/libjemalloc.so.2"
