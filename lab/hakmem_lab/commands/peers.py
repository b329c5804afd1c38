"""`hakmem peers`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hakmem_lab.allocators.peers import Missing, Peer, PeerStore
from hakmem_lab.allocators.service import Proof, service_prove
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import TABLE_WIDTH, BuildOption, JsonOption, words_split
from hakmem_lab.errors import LabError, RunInterruptedError
from hakmem_lab.files import text_write
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.stage import Stage, staged


@dataclass(frozen=True)
class Seen:
    """One available peer, and whether it serves."""

    peer: Peer
    proof: Proof | None
    why_not: str = ""


def peers(
    allocators: Annotated[
        str, typer.Option(help="Only these, comma-separated; it is an error if one is not available.")
    ] = "",
    build: BuildOption = None,
    json_file: JsonOption = None,
) -> None:
    """Obtains every peer and shows that each serves a program."""
    checkout = Checkout.find(build)
    store = PeerStore(checkout)
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    try:
        names = words_split(allocators)
        with staged(checkout) as stage:
            obtained = [store.obtain(name) for name in dict.fromkeys(names or ["hakmem"])]
            missing: list[Missing] = []
            if not names:
                found, missing = store.obtain_default()
                obtained += found
            seen = [_see(stage, peer) for peer in obtained]
    except KeyboardInterrupt:
        raise RunInterruptedError("interrupted; peers that were already made are kept") from None
    _show(console, seen, missing)
    if json_file is not None:
        text_write(json_file, json.dumps(_content(seen, missing), indent=2, default=str) + "\n")
    if missing or any(one.proof is None for one in seen):
        raise typer.Exit(1)


def _see(stage: Stage, peer: Peer) -> Seen:
    try:
        return Seen(peer, service_prove(stage, stage.peer(peer), cpus_allowed()))
    except LabError as error:
        return Seen(peer, None, str(error))


def _show(console: Console, seen: list[Seen], missing: list[Missing]) -> None:
    table = Table(title="Peers", title_justify="left", show_lines=True)
    for column in ("peer", "version, from", "built, identity", "serves"):
        table.add_column(column, overflow="fold")
    for one in seen:
        peer = one.peer
        options = [f"{name}={value}" for name, value in peer.environment]
        table.add_row(
            _lines(peer.name, *options),
            _lines(peer.version, peer.origin, peer.note),
            _lines(peer.flags, peer.identity),
            _lines("yes", one.proof.own) if one.proof else _lines(Text("no", "red"), one.why_not),
        )
    for peer in missing:
        table.add_row(peer.name, "", "", _lines(Text("cannot be had", "red"), peer.why))
    console.print(table)


def _lines(*words: str | Text) -> Text:
    """Verbatim: what a peer says of itself is not markup."""
    return Text("\n").join(Text(word) if isinstance(word, str) else word for word in words if word)


def _content(seen: list[Seen], missing: list[Missing]) -> dict[str, object]:
    return {
        "peers": [
            asdict(replace(one.peer, library=None))
            | {
                "serves": one.proof is not None,
                "proof": one.proof and asdict(one.proof),
                "why_not": one.why_not,
            }
            for one in seen
        ],
        "missing": [asdict(peer) for peer in missing],
    }
