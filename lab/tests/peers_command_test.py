from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from hakmem_lab.allocators.peers import Missing, Peer
from hakmem_lab.commands import peers as command
from hakmem_lab.errors import LabError, RunInterruptedError

GLIBC = Peer("glibc", "2.36", None, "the C library", note="old [sic]")
BROKEN = Peer("broken", "1", None, "id", proof="jemalloc")


class Store:
    """Peers without a registry."""

    def __init__(self, peers: dict[str, Peer], missing: list[Missing]) -> None:
        self.peers, self.missing = peers, missing

    def obtain(self, name: str) -> Peer:
        if name == "interrupted":
            raise KeyboardInterrupt
        if name not in self.peers:
            raise LabError(f"there is no peer '{name}'")
        return self.peers[name]

    def obtain_default(self) -> tuple[list[Peer], list[Missing]]:
        return [peer for name, peer in self.peers.items() if name != "hakmem"], self.missing


def run(
    monkeypatch: pytest.MonkeyPatch,
    build: Path,
    allocators: str,
    json_file: Path,
    missing: tuple[Missing, ...] = (),
    **peers: Peer,
) -> dict[str, list[dict[str, str]]]:
    """What it wrote; its exit status as `status`."""
    monkeypatch.setattr(command, "PeerStore", lambda _checkout: Store(peers, list(missing)))
    status = 0
    try:
        command.peers(allocators, build, json_file)
    except typer.Exit as error:
        status = error.exit_code
    return json.loads(json_file.read_text()) | {"status": status}


def test_what_serves_is_shown_with_its_note(
    monkeypatch: pytest.MonkeyPatch, build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = run(monkeypatch, build, "glibc", tmp_path / "peers.json", glibc=GLIBC)
    assert content["status"] == 0
    assert content["peers"][0]["serves"] is True
    assert "old [sic]" in capsys.readouterr().out


def test_a_missing_peer_of_the_default_set_is_reported_and_the_others_are_seen(
    monkeypatch: pytest.MonkeyPatch, build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = Missing("scudo", "no network")
    file = tmp_path / "peers.json"
    content = run(monkeypatch, build, "", file, (missing,), hakmem=GLIBC, glibc=GLIBC)
    assert content["status"] == 1
    assert content["missing"] == [{"name": "scudo", "why": "no network"}]
    assert [peer["serves"] for peer in content["peers"]] == [True, True]
    shown = capsys.readouterr().out
    assert "cannot be had" in shown
    assert "no network" in shown


def test_a_peer_that_does_not_serve_is_told_beside_those_that_do(
    monkeypatch: pytest.MonkeyPatch, build: Path, tmp_path: Path
) -> None:
    content = run(monkeypatch, build, "broken,glibc", tmp_path / "peers.json", broken=BROKEN, glibc=GLIBC)
    assert content["status"] == 1
    assert [peer["serves"] for peer in content["peers"]] == [False, True]
    assert "there is no mallctl in the process" in content["peers"][0]["why_not"]


def test_a_named_peer_that_cannot_be_had_is_an_error(
    monkeypatch: pytest.MonkeyPatch, build: Path, tmp_path: Path
) -> None:
    with pytest.raises(LabError, match="there is no peer 'nosuch'"):
        run(monkeypatch, build, "glibc,nosuch", tmp_path / "peers.json", glibc=GLIBC)


def test_an_interrupt_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, build: Path, tmp_path: Path) -> None:
    with pytest.raises(RunInterruptedError, match="interrupted; peers that were already made are kept"):
        run(monkeypatch, build, "interrupted", tmp_path / "peers.json")
