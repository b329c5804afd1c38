from __future__ import annotations

import time
from pathlib import Path

import pytest
from hakmem_lab.allocators import registries
from hakmem_lab.allocators.registries import package_fetch
from hakmem_lab.errors import LabError
from lab_registries import LIBRARY, Tools, crate_make, pinned_make, sha256, wheel_make


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))
    return Tools(tmp_path / "bin", monkeypatch)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def pip_make(tools: Tools, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """The laboratory's own interpreter is asked for pip."""
    tools.add("python", script)
    monkeypatch.setattr(registries.sys, "executable", str(tools.folder / "python"))


def test_a_wheel_comes_by_pip(
    tmp_path: Path, tools: Tools, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = wheel_make(tmp_path / "some.whl")
    pip_make(tools, monkeypatch, f"cp {wheel} .")
    folder = package_fetch(pinned_make("wheel", sha256(wheel)), scratch)
    assert (folder / "lib/libsome.so.1").read_bytes() == LIBRARY
    assert "--require-hashes" in tools.calls[0]
    wanted = (scratch / "wanted.txt").read_text()
    assert wanted == f"some-sys==0.1.2+3.4 --hash=sha256:{sha256(wheel)}\n"


def test_a_debian_package_comes_by_apt_and_is_not_installed(
    tmp_path: Path, tools: Tools, scratch: Path
) -> None:
    package = tmp_path / "some.deb"
    package.write_bytes(b"a package")
    tools.add("apt-get", f"cp {package} .")
    tools.add("dpkg-deb", 'echo unpacked >"$3/content"')
    folder = package_fetch(pinned_make("deb", sha256(package)), scratch)
    assert (folder / "content").read_text() == "unpacked\n"
    assert tools.calls[0] == "apt-get --quiet download some-sys=0.1.2+3.4"


def cached(tmp_path: Path) -> Path:
    folder = tmp_path / "cargo/registry/cache/index"
    folder.mkdir(parents=True)
    return crate_make(folder / "some-sys-0.1.2+3.4.crate", "some-sys-0.1.2+3.4", some_c="int some;")


def test_a_crate_comes_by_cargo_just_this_version(tmp_path: Path, tools: Tools, scratch: Path) -> None:
    crate = cached(tmp_path)
    tools.add("cargo", "cp Cargo.toml ../asked")
    folder = package_fetch(pinned_make("crate", sha256(crate)), scratch)
    assert (folder / "some.c").read_text() == "int some;"
    assert 'some-sys = "=0.1.2"' in (scratch / "asked").read_text()


def test_another_package_is_refused_and_not_unpacked(tmp_path: Path, tools: Tools, scratch: Path) -> None:
    crate = cached(tmp_path)
    tools.add("cargo", "")
    with pytest.raises(LabError) as caught:
        package_fetch(pinned_make("crate", "12ab"), scratch)
    said = f"some (crate some-sys 0.1.2+3.4): its SHA-256 is {sha256(crate)}, pinned is 12ab"
    assert str(caught.value) == said
    assert not (scratch / "package").exists()


def test_a_package_that_did_not_come_is_an_error(tools: Tools, scratch: Path) -> None:
    tools.add("cargo", "")
    with pytest.raises(LabError, match=r"some \(crate some-sys 0.1.2\+3.4\) did not come"):
        package_fetch(pinned_make("crate", "00"), scratch)


def test_a_broken_package_is_one_clear_line(
    tmp_path: Path, tools: Tools, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "some.whl"
    wheel.write_bytes(b"half a pack")
    pip_make(tools, monkeypatch, f"cp {wheel} .")
    with pytest.raises(LabError, match="cannot be unpacked: File is not a zip file"):
        package_fetch(pinned_make("wheel", sha256(wheel)), scratch)


@pytest.mark.parametrize(
    ("registry", "tool", "script", "message"),
    [
        (
            "wheel",
            "python",
            "echo 'ERROR: no network' >&2; exit 1",
            "pip: python exited with 1: ERROR: no network",
        ),
        (
            "crate",
            "cargo",
            "echo 'error: no network' >&2; exit 101",
            "cargo exited with 101: error: no network",
        ),
        (
            "deb",
            "apt-get",
            "echo 'W: old' >&2; echo 'E: Version was not found' >&2; exit 100",
            "apt-get exited with 100: E: Version was not found (are apt's lists new? apt-get update)",
        ),
    ],
)
def test_a_registry_that_fails_is_one_clear_line(
    registry: str,
    tool: str,
    script: str,
    message: str,
    tools: Tools,
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tools.add("dpkg-deb", "")
    pip_make(tools, monkeypatch, script)
    tools.add(tool, script)
    with pytest.raises(LabError) as caught:
        package_fetch(pinned_make(registry, "00"), scratch)
    assert str(caught.value) == f"some ({registry} some-sys 0.1.2+3.4): {message}"


def test_a_registry_that_does_not_answer_is_given_up(
    tools: Tools, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "FETCH_SECONDS", 0.1)
    written = scratch / "written"
    tools.add("cargo", f"(sleep 0.5; touch {written}) & sleep 60")
    with pytest.raises(LabError, match=r"cargo did not end within 0\.1 s"):
        package_fetch(pinned_make("crate", "00"), scratch)
    time.sleep(0.7)
    assert not written.exists(), "what it had started went on"


@pytest.mark.parametrize(
    ("registry", "message"),
    [
        ("crate", "needs cargo; on Debian: apt-get install cargo"),
        ("deb", "needs apt-get, dpkg-deb; on Debian: apt-get install apt dpkg"),
    ],
)
def test_missing_tools_are_named_with_their_packages(
    registry: str, message: str, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tools(tmp_path / "bin", monkeypatch, alone=True)
    with pytest.raises(LabError, match=message):
        package_fetch(pinned_make(registry, "00"), scratch)
