from __future__ import annotations

from pathlib import Path

import pytest
from hakmem_lab.allocators import peers
from hakmem_lab.allocators.libraries import library_folder
from hakmem_lab.allocators.peers import GLIBC_NOTE, Missing, PeerStore, glibc_note
from hakmem_lab.allocators.pins import LOCK, Pinned, pinned_names, pinned_note, pinned_read
from hakmem_lab.allocators.probe import FAMILIES
from hakmem_lab.allocators.registries import REGISTRIES
from hakmem_lab.allocators.tools import PACKAGES
from hakmem_lab.checkout import Checkout, machine
from hakmem_lab.errors import LabError
from hakmem_lab.studies.bench import FULL_ONLY

PEERS = "mimalloc3 mimalloc3-nothp mimalloc2 jemalloc snmalloc snmalloc-checks tcmalloc tcmalloc-percpu gperftools"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PeerStore:
    """All can be had but snmalloc's checked build."""

    def obtain(pinned: Pinned, _tools: Path) -> Path:
        if pinned.name == "snmalloc-checks":
            raise LabError("snmalloc-checks: no network")
        return tmp_path / pinned.library

    monkeypatch.setattr(peers, "library_obtain", obtain)
    monkeypatch.setattr(peers.elf, "build_id", lambda path: f"id of {path.name}")
    return PeerStore(Checkout(tmp_path, tmp_path / "build"))


def test_every_peer_of_the_laboratory_is_in_the_default_set(store: PeerStore) -> None:
    assert store.default_names == ["glibc", *PEERS.split(), "rpmalloc", "scudo"]
    assert store.names == ["hakmem", *store.default_names, "ceiling", "null"]


def test_an_unknown_peer_is_an_error_that_names_the_known(store: PeerStore) -> None:
    with pytest.raises(LabError, match="no peer 'nosuch'; known: hakmem, glibc, mimalloc3"):
        store.obtain("nosuch")


def test_a_library_that_is_not_built_is_an_error(store: PeerStore) -> None:
    with pytest.raises(LabError, match=r"build/libhakmem\.so is not there: run \./hakmem build first"):
        store.obtain("hakmem")


def test_a_peer_that_was_named_and_cannot_be_had_is_an_error(store: PeerStore) -> None:
    with pytest.raises(LabError, match="snmalloc-checks: no network"):
        store.obtain("snmalloc-checks")


def test_of_the_default_set_it_is_reported_and_the_others_go_on(store: PeerStore) -> None:
    obtained, missing = store.obtain_default()
    assert missing == [Missing("snmalloc-checks", "snmalloc-checks: no network")]
    assert [peer.name for peer in obtained] == [
        name for name in store.default_names if name != "snmalloc-checks"
    ]


def test_what_is_not_there_yet_is_said_to_be_obtained(
    store: PeerStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library_folder(pinned_read("mimalloc2"), tmp_path / ".tools").mkdir(parents=True)
    store.obtain_default({"scudo"})
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "hakmem: obtaining mimalloc3 (1 of 10)"
    assert "hakmem: obtaining jemalloc (4 of 10)" in said
    assert not any("mimalloc2" in line or "glibc" in line for line in said)
    store.obtain("jemalloc")
    assert capsys.readouterr().err == "hakmem: obtaining jemalloc\n"


def test_what_a_reader_must_know_stands_in_the_lock() -> None:
    assert "older than" in pinned_note("gperftools")
    assert pinned_note("jemalloc") == pinned_note("no such peer") == ""


def test_the_quick_suite_leaves_peers_out_that_there_are(store: PeerStore) -> None:
    assert set(store.default_names) >= FULL_ONLY
    obtained, missing = store.obtain_default(FULL_ONLY)
    assert missing == []
    assert [peer.name for peer in obtained] == [name for name in store.default_names if name not in FULL_ONLY]


def test_a_variant_is_the_same_library_in_another_environment(store: PeerStore) -> None:
    plain, variant = store.obtain("mimalloc3"), store.obtain("mimalloc3-nothp")
    assert plain.library == variant.library
    assert plain.environment == ()
    assert variant.environment == (("MIMALLOC_ALLOW_THP", "0"),)
    percpu = store.obtain("tcmalloc-percpu")
    assert percpu.note != store.obtain("tcmalloc").note
    assert percpu.proof == "tcmalloc-percpu"


@pytest.mark.parametrize(
    ("version", "note"), [("2.36", GLIBC_NOTE), ("2.42", ""), ("2.42.1", ""), ("3.0", ""), ("unknown", "")]
)
def test_an_old_glibc_is_said_to_be_old(version: str, note: str) -> None:
    assert glibc_note(version) == note


def test_the_lock_pins_every_peer() -> None:
    if machine() not in ("x86_64", "aarch64"):
        pytest.skip("binary packages are pinned for x86_64 and aarch64")
    for name in pinned_names():
        pinned = pinned_read(name)
        assert pinned.package.registry in REGISTRIES
        assert len(pinned.package.sha256) == 64
        assert pinned.flags
        assert pinned.proof in FAMILIES
        assert (pinned.recipe is None) == (len(pinned.library_sha256 or "") == 64)
        assert set(pinned.recipe.tools if pinned.recipe else ()) <= set(PACKAGES)


def test_all_hashes_of_one_package_agree() -> None:
    packages = {pinned_read(name).package for name in pinned_names()}
    assert len({(package.name, package.version) for package in packages}) == len(packages)


@pytest.mark.parametrize("kind", ["x86_64", "aarch64"])
def test_a_pin_counts_only_on_its_kind_of_machine(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hakmem_lab.allocators.pins.machine", lambda: kind)
    assert pinned_read("scudo").library.endswith(f"-{kind}.so")
    lock = tmp_path / "peers.toml"
    lock.write_text(LOCK.read_text().replace(f"[scudo.{kind}]", "[scudo.pdp11]"))
    with pytest.raises(LabError, match=f"scudo 22.1.8 is not pinned for {kind}"):
        pinned_read("scudo", lock)
