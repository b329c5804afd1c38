"""hakmem with its default options against hakmem with others: what an option costs and what it buys.

The arms are the same library; only HAKMEM_CONF differs. They are measured as peers are, with the same controls.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.errors import LabError
from hakmem_lab.measure.runner import Arm, environment_make
from hakmem_lab.measure.stage import Stage

VARIABLE = "HAKMEM_CONF"
CHECK_SECONDS = 30


def options_peer(hakmem: Peer, options: str) -> Peer:
    return replace(hakmem, name=f"hakmem {options}", environment=((VARIABLE, options),))


def options_check(stage: Stage, peer: Peer) -> None:
    """The library says on standard error what it does not understand, and goes on with its defaults."""
    done = subprocess.run(
        [stage.program("no_alloc"), "1", "1"],
        env=environment_make(Arm(peer), 0, preload=True),
        capture_output=True,
        text=True,
        timeout=CHECK_SECONDS,
        check=False,
    )
    if done.returncode != 0 or done.stderr:
        lines = done.stderr.splitlines() or [f"it exited with {done.returncode}"]
        raise LabError(f"{peer.name}: {lines[0].removeprefix('hakmem: ')}")
