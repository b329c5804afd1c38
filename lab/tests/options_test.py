from __future__ import annotations

from dataclasses import replace

import pytest
from hakmem_lab.allocators.options import options_peer
from hakmem_lab.measure.runner import Arm, environment_make
from hakmem_lab.workloads.cells import Measure
from lab_pairs import HAKMEM, pair_make


def test_an_arm_is_the_same_library_with_other_options() -> None:
    peer = options_peer(HAKMEM.peer, "decay:never")
    assert peer.name == "hakmem decay:never"
    assert peer.library == HAKMEM.peer.library
    assert environment_make(Arm(peer), 0, preload=True)["HAKMEM_CONF"] == "decay:never"


def test_a_pair_can_be_compared_by_processor_time() -> None:
    pair = pair_make("some", 2.0)
    pair = replace(pair, other=replace(pair.other, cpu_seconds=3 * pair.subject.cpu_seconds))
    assert 2.718281828459045**pair.log_ratio == pytest.approx(2)
    by_cpu = replace(pair, measure=Measure.CPU)
    assert 2.718281828459045**by_cpu.log_ratio == pytest.approx(3)
