from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
from hakmem_lab.allocators import peers
from hakmem_lab.allocators.peers import PeerStore, Pinned, pinned_obtain, pinned_read
from hakmem_lab.checkout import Checkout, machine
from hakmem_lab.errors import LabError

CONTENT = b"not really a library"


def pinned_make(library_sha256: str) -> Pinned:
    return Pinned("some", "some-package", "1.2", "lib/libsome.so.1", "00", library_sha256)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A registry without a network; it counts what it was asked."""
    asked: list[str] = []

    def download(pinned: Pinned, folder: Path) -> Path:
        asked.append(pinned.package)
        archive = folder / "some.whl"
        with zipfile.ZipFile(archive, "w") as package:
            package.writestr(pinned.member, CONTENT)
        return archive

    monkeypatch.setattr(peers, "_download", download)
    return asked


def test_a_peer_is_fetched_once_and_checked_always(tmp_path: Path, registry: list[str]) -> None:
    pinned = pinned_make(hashlib.sha256(CONTENT).hexdigest())
    library = pinned_obtain(pinned, tmp_path)
    assert library.read_bytes() == CONTENT
    assert pinned_obtain(pinned, tmp_path) == library
    assert registry == ["some-package"]
    library.write_bytes(b"tampered")
    with pytest.raises(LabError, match="SHA-256"):
        pinned_obtain(pinned, tmp_path)
    assert pinned_obtain(pinned, tmp_path).read_bytes() == CONTENT


def test_another_library_in_the_package_is_refused(tmp_path: Path, registry: list[str]) -> None:
    with pytest.raises(LabError, match="pinned is 1234"):
        pinned_obtain(pinned_make("1234"), tmp_path)
    assert registry == ["some-package"]


def test_an_unknown_peer_is_an_error_that_names_the_known(tmp_path: Path) -> None:
    store = PeerStore(Checkout(tmp_path, tmp_path))
    with pytest.raises(LabError, match="no peer 'nosuch'; known: hakmem, glibc, mimalloc3"):
        store.obtain("nosuch")


def test_a_library_that_is_not_built_is_an_error(tmp_path: Path) -> None:
    store = PeerStore(Checkout(tmp_path, tmp_path / "build"))
    with pytest.raises(LabError, match=r"build/libhakmem\.so is not there: run \./hakmem build first"):
        store.obtain("hakmem")


def test_the_lock_pins_this_machine_kind() -> None:
    if machine() not in ("x86_64", "aarch64"):
        with pytest.raises(LabError, match="not pinned"):
            pinned_read("mimalloc3")
        return
    pinned = pinned_read("mimalloc3")
    assert len(pinned.package_sha256) == len(pinned.library_sha256) == 64


def test_a_kind_of_machine_without_a_pin_is_an_error(tmp_path: Path) -> None:
    lock = tmp_path / "peers.toml"
    lock.write_text('[some]\npackage = "p"\nversion = "1"\nmember = "m"\n')
    with pytest.raises(LabError, match="some 1 is not pinned for"):
        pinned_read("some", lock)
