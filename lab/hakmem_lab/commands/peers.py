"""`hakmem peers`."""

from __future__ import annotations

from hakmem_lab.allocators.peers import PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import BuildOption, grids_show
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.runner import Arm, Conditions, json_run
from hakmem_lab.measure.stage import staged
from hakmem_lab.reports.report import (
    Grid,
)


def peers(build: BuildOption = None) -> None:
    """Obtains every peer and shows that each serves a program."""
    checkout = Checkout.find(build)
    store = PeerStore(checkout)
    rows = []
    with staged(checkout) as stage:
        program = stage.program("random_mixed")
        conditions = Conditions(seed=1, padding=0, cpus=cpus_allowed())
        for name in store.names:
            peer = stage.peer(store.obtain(name))
            json_run(program, ["1000", "100", "1"], Arm(peer), conditions)
            rows.append((name, peer.version, peer.identity, "yes"))
    columns = ("peer", "version", "identity", "serves")
    grids_show([Grid("Peers", columns, tuple(rows), len(columns))], [])
