from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hakmem_lab.allocators import crates
from hakmem_lab.allocators.crates import PinnedCrate, cargo_home, crate_obtain, crate_pinned_read, tools_check
from hakmem_lab.allocators.peers import LOCK
from hakmem_lab.errors import LabError

CONTENT = b"sources"
PINNED = PinnedCrate("some", "some-sys", "0.1.2+3.4.5-0-gabc", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Neither cargo nor a compiler; it counts what it was asked."""
    asked: list[str] = []

    def fetch(pinned: PinnedCrate, folder: Path) -> Path:
        asked.append(pinned.crate)
        return folder

    def build(_pinned: PinnedCrate, sources: Path) -> Path:
        library = sources / "built.so"
        library.write_bytes(b"a library")
        return library

    monkeypatch.setattr(crates, "_fetch", fetch)
    monkeypatch.setattr(crates, "_unpack", lambda _pinned, _archive, folder: folder)
    monkeypatch.setattr(crates, "_build", build)
    return asked


def test_a_peer_is_built_once_and_checked_always(tmp_path: Path, built: list[str]) -> None:
    library = crate_obtain(PINNED, tmp_path)
    assert library.read_bytes() == b"a library"
    assert library.parent.name == "some-3.4.5"
    assert crate_obtain(PINNED, tmp_path) == library
    assert built == ["some-sys"]
    library.write_bytes(b"tampered")
    with pytest.raises(LabError, match="run again to build it anew"):
        crate_obtain(PINNED, tmp_path)
    assert crate_obtain(PINNED, tmp_path).read_bytes() == b"a library"


def cached(home: Path, content: bytes) -> Path:
    archive = home / "registry/cache/index" / f"{PINNED.crate}-{PINNED.version}.crate"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(content)
    return archive


@pytest.fixture
def cargo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cargo that finds everything in its cache already; its home."""
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(crates, "tools_check", lambda _name: None)
    monkeypatch.setattr(crates, "_run", lambda *_arguments: None)
    return cargo_home()


def test_cargo_is_asked_for_just_this_version(cargo: Path, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    archive = cached(cargo, CONTENT)
    assert crates._fetch(PINNED, folder) == archive
    assert 'some-sys = "=0.1.2"' in (folder / "Cargo.toml").read_text()


def test_another_crate_is_refused(cargo: Path, tmp_path: Path) -> None:
    cached(cargo, b"other sources")
    with pytest.raises(LabError, match="the crate's SHA-256 is"):
        crates._fetch(PINNED, tmp_path)


def test_a_crate_that_did_not_come_is_an_error(cargo: Path, tmp_path: Path) -> None:
    assert not cargo.exists()
    with pytest.raises(LabError, match="cargo has not brought some-sys"):
        crates._fetch(PINNED, tmp_path)


def test_missing_tools_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crates.shutil, "which", lambda tool: None if tool in ("cargo", "cc") else tool)
    with pytest.raises(LabError, match="apt-get install cargo gcc libc6-dev"):
        tools_check("some")


def test_the_lock_pins_jemalloc() -> None:
    pinned = crate_pinned_read("jemalloc", LOCK)
    assert pinned.source_version.startswith(pinned.short_version + "-")
    assert len(pinned.crate_sha256) == 64
