"""Package registries: how a pinned package is fetched, and that it is the pinned one.

pip, cargo and apt-get fetch, each from the source in its own configuration. Nothing is installed. A package is
unpacked only if its hash is the pinned one.
"""

from __future__ import annotations

import os
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from hakmem_lab.allocators import elf
from hakmem_lab.allocators.pins import Package, Pinned
from hakmem_lab.allocators.tools import tool_run, tools_check
from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING

FETCH_SECONDS = 300


def package_fetch(pinned: Pinned, folder: Path) -> Path:
    """The unpacked package, in a folder of its own below FOLDER."""
    fetch, unpack = REGISTRIES[pinned.package.registry]
    archives = fetch(pinned, folder)
    if not archives:
        raise LabError(f"{pinned} did not come")
    hashes = {elf.sha256(archive): archive for archive in archives}
    if pinned.package.sha256 not in hashes:
        raise LabError(f"{pinned}: its SHA-256 is {', '.join(hashes)}, pinned is {pinned.package.sha256}")
    unpacked = folder / "package"
    unpacked.mkdir()
    try:
        return unpack(pinned, hashes[pinned.package.sha256], unpacked)
    except (OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise LabError(f"{pinned} cannot be unpacked: {error}") from error


# ---- Python packages --------------------------------------------------------------------------------


def _wheel_fetch(pinned: Pinned, folder: Path) -> list[Path]:
    """pip checks the hash, too."""
    package = pinned.package
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", ENCODING)
    command = [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--dest", str(folder), "--requirement", str(wanted)]
    tool_run(f"{pinned}: pip", command, folder, FETCH_SECONDS)
    return sorted(folder.glob("*.whl"))


def _wheel_unpack(_pinned: Pinned, archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as package:
        package.extractall(folder)
    return folder


# ---- Debian packages --------------------------------------------------------------------------------


def _deb_fetch(pinned: Pinned, folder: Path) -> list[Path]:
    tools_check(str(pinned), ("apt-get", "dpkg-deb"))
    wanted = f"{pinned.package.name}={pinned.package.version}"
    try:
        tool_run(str(pinned), ["apt-get", "--quiet", "download", wanted], folder, FETCH_SECONDS)
    except LabError as error:
        raise LabError(f"{error} (are apt's lists new? apt-get update)") from error
    return sorted(folder.glob("*.deb"))


def _deb_unpack(pinned: Pinned, archive: Path, folder: Path) -> Path:
    tool_run(str(pinned), ["dpkg-deb", "--extract", str(archive), str(folder)], folder, FETCH_SECONDS)
    return folder


# ---- crates -----------------------------------------------------------------------------------------


def cargo_home() -> Path:
    return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")


def _crate_fetch(pinned: Pinned, folder: Path) -> list[Path]:
    """The archives in cargo's cache, by means of an empty package that depends on exactly this version."""
    tools_check(str(pinned), ("cargo",))
    package = pinned.package
    wanting = folder / "wanting"
    (wanting / "src").mkdir(parents=True)
    (wanting / "src/lib.rs").touch()
    (wanting / "Cargo.toml").write_text(
        '[package]\nname = "peer"\nversion = "0.0.0"\nedition = "2021"\n\n[workspace]\n\n'
        f'[dependencies]\n{package.name} = "={package.version.partition("+")[0]}"\n',
        ENCODING,
    )
    tool_run(str(pinned), ["cargo", "fetch", "--quiet"], wanting, FETCH_SECONDS)
    return sorted((cargo_home() / "registry/cache").glob(f"*/{_crate_folder(package)}.crate"))


def _crate_unpack(pinned: Pinned, archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as sources:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and later
            sources.extraction_filter = tarfile.data_filter
        sources.extractall(folder)
    return folder / _crate_folder(pinned.package)


def _crate_folder(package: Package) -> str:
    return f"{package.name}-{package.version}"


REGISTRIES: dict[str, tuple[Callable[[Pinned, Path], list[Path]], Callable[[Pinned, Path, Path], Path]]] = {
    "wheel": (_wheel_fetch, _wheel_unpack),
    "deb": (_deb_fetch, _deb_unpack),
    "crate": (_crate_fetch, _crate_unpack),
}
