from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.allocators import libraries
from hakmem_lab.allocators.libraries import library_obtain
from hakmem_lab.allocators.pins import Pinned
from hakmem_lab.allocators.recipes import Recipe
from hakmem_lab.errors import LabError
from lab_registries import LIBRARY, pinned_make

BINARY = pinned_make("wheel", "00")
BUILT = pinned_make("crate", "00", Recipe("", "libsome.so", (), ("cp lib/libsome.so.1 libsome.so",)))


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A registry without a network; it counts what it was asked."""
    asked: list[str] = []

    def fetch(pinned: Pinned, folder: Path) -> Path:
        asked.append(pinned.package.name)
        (folder / "lib").mkdir()
        (folder / "lib/libsome.so.1").write_bytes(LIBRARY)
        return folder

    monkeypatch.setattr(libraries, "package_fetch", fetch)
    return asked


@pytest.mark.parametrize("pinned", [BINARY, BUILT])
def test_a_library_is_made_once_and_checked_always(
    tmp_path: Path, fetched: list[str], pinned: Pinned
) -> None:
    library = library_obtain(pinned, tmp_path)
    assert library.read_bytes() == LIBRARY
    assert library_obtain(pinned, tmp_path) == library
    assert fetched == ["some-sys"]
    library.write_bytes(b"tampered")
    with pytest.raises(LabError, match="it was removed, run again to make it anew"):
        library_obtain(pinned, tmp_path)
    assert library_obtain(pinned, tmp_path).read_bytes() == LIBRARY


def test_a_note_does_not_vouch_for_another_library_than_the_pinned(
    tmp_path: Path, fetched: list[str]
) -> None:
    library = library_obtain(BINARY, tmp_path)
    library.write_bytes(b"tampered")
    library.with_name(libraries.NOTE).write_text(libraries._note(BINARY, library))
    with pytest.raises(LabError, match="it was removed"):
        library_obtain(BINARY, tmp_path)
    assert fetched == ["some-sys"]


@pytest.mark.parametrize(
    ("pinned", "message"),
    [
        (replace(BINARY, library_sha256="12ab"), "the library's SHA-256 is .*, pinned is 12ab"),
        (
            replace(BINARY, library="lib/other.so"),
            r"some \(wheel some-sys 0.1.2\+3.4\) holds no lib/other.so",
        ),
    ],
)
def test_another_library_in_the_package_is_refused(
    tmp_path: Path, fetched: list[str], pinned: Pinned, message: str
) -> None:
    with pytest.raises(LabError, match=message):
        library_obtain(pinned, tmp_path)
    assert fetched == ["some-sys"]
    assert list((tmp_path / "peers").iterdir()) == []


@pytest.mark.parametrize(
    "trouble", [KeyboardInterrupt(), LabError("no network"), OSError(28, "No space left")]
)
def test_trouble_leaves_nothing_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: BaseException
) -> None:
    def fetch(_pinned: Pinned, folder: Path) -> Path:
        (folder / "half").write_bytes(LIBRARY)
        raise trouble

    monkeypatch.setattr(libraries, "package_fetch", fetch)
    with pytest.raises((KeyboardInterrupt, LabError)):
        library_obtain(BINARY, tmp_path)
    assert list((tmp_path / "peers").iterdir()) == []


BUILDS_FOR_LONG = """
import sys
from pathlib import Path
from hakmem_lab.allocators import libraries
from hakmem_lab.allocators.tools import tool_run
from hakmem_lab.checkout import Checkout
from hakmem_lab.measure.stage import staged
from hakmem_lab.processes import ending_as_interrupted
from lab_registries import pinned_make

def fetch(pinned, folder):
    tool_run("some", ["sh", "-c", "echo $$ >pid.new && mv pid.new pid && exec sleep 60"], folder, 60)

libraries.package_fetch = fetch
folder = Path(sys.argv[1])
try:
    with ending_as_interrupted(), staged(Checkout(folder, folder)) as stage:
        libraries.library_obtain(pinned_make("wheel", "00"), stage.checkout.tools)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_who_is_told_to_end_while_it_builds_leaves_nothing(tmp_path: Path) -> None:
    tests = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{tests.parent}:{tests}", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen([sys.executable, "-c", BUILDS_FOR_LONG, str(tmp_path)], env=environment)
    deadline = time.monotonic() + 30
    while not (started := list(tmp_path.glob(".tools/peers/making-*/pid"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    tool = int(started[0].read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 130
    assert not Path(f"/proc/{tool}").exists()
    assert list(tmp_path.glob(".tools/*/*")) == []


def test_of_two_who_make_it_the_second_keeps_the_first_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetched: list[str]
) -> None:
    simple_fetch = libraries.package_fetch

    def fetch(pinned: Pinned, folder: Path) -> Path:
        monkeypatch.setattr(libraries, "package_fetch", simple_fetch)
        library_obtain(pinned, tmp_path).with_name("first").touch()
        return simple_fetch(pinned, folder)

    monkeypatch.setattr(libraries, "package_fetch", fetch)
    library = library_obtain(BINARY, tmp_path)
    assert library.with_name("first").exists()
    assert library.read_bytes() == LIBRARY
    assert len(fetched) == 2


def test_another_pin_never_meets_an_old_library(tmp_path: Path, fetched: list[str]) -> None:
    recipe = replace(BUILT.recipe, commands=("cp lib/libsome.so.1 libsome.so", "true"))
    folders = {
        library_obtain(pinned, tmp_path).parent
        for pinned in (BUILT, replace(BUILT, recipe=recipe), replace(BUILT, name="some-variant"))
    }
    assert len(folders) == 2
    assert len(fetched) == 2
