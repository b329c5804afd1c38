"""The proof that a peer serves, before anything is measured under it.

Programs of bench/ and probe.py run under the peer. Each must succeed and report that its malloc and free are the
peer's; the peer's own functions must recognise the blocks.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.errors import LabError, ProcessFailedError
from hakmem_lab.measure.runner import Arm, Conditions, environment_make, json_run, process_run, service_check
from hakmem_lab.measure.stage import Stage

PROBE = Path(__file__).with_name("probe.py")
PROGRAMS = (
    ("random_mixed", ("20000", "1000", "1")),
    ("producer_consumer", ("20000", "0", "16", "1")),
)
"""One thread; and a thread that frees what another allocates, which needs an owner."""


@dataclass(frozen=True)
class Proof:
    """What was seen of one peer."""

    programs: tuple[str, ...]
    own: str
    """What its own functions reported; empty for a library that is named only by its path."""


def service_prove(stage: Stage, peer: Peer, cpus: tuple[int, ...]) -> Proof:
    """An error in one line if the staged PEER does not serve."""
    conditions = Conditions(seed=1, padding=0, cpus=cpus)
    programs = PROGRAMS[:1] if peer.bare else PROGRAMS
    for program, arguments in programs:
        json_run(stage.program(program), arguments, Arm(peer), conditions)
    own = probe_run(peer, conditions) if peer.proof else ""
    return Proof(tuple(program for program, _arguments in programs), own)


def probe_run(peer: Peer, conditions: Conditions) -> str:
    command = [sys.executable, "-I", "-S", "-B", str(PROBE), peer.proof, peer.version]
    try:
        line = json.loads(process_run(command, environment_make(Arm(peer), 0, preload=True), conditions.cpus))
    except (LabError, ValueError) as error:
        text = f"{peer.name} did not prove itself: {error}"
        # The probe refuses by its exit status; that a process dies is a result of its own.
        if isinstance(error, ProcessFailedError) and not error.outcome.startswith("failed"):
            raise ProcessFailedError(text, error.outcome) from error
        raise LabError(text) from error
    service_check(line, peer)
    return str(line["own"])
