"""A snapshot of redis, small: BGSAVE forks, the server writes, and pages are copied. `./hakmem bgsave` measures more of it;
docs/results/bgsave.md has the figures."""

import random

import pytest
from hakmem_lab.allocators.peers import PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.measure.stage import staged
from hakmem_lab.studies import snapshot
from hakmem_lab.studies.footprint import arm_of
from hakmem_lab.studies.snapshot import CHANGES, NOTHING
from toolbox import Build, tool

DELETE = CHANGES[1]
ARMS = ["hakmem", "glibc"]


def test_deleting_keys_copies_little(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """hakmem writes nothing into a block that is freed, nor beside it, where glibc does: so the pages of deleted keys stay
    shared with the child. That the snapshot itself succeeds is part of each run."""
    tool("redis-server")
    monkeypatch.setattr(snapshot, "IDLE_SECONDS", 0.2)
    with staged(Checkout.find(build.directory)) as stage:
        arms = [arm_of(stage.peer(PeerStore(stage.checkout).obtain(name))) for name in ARMS]
        samples = snapshot.rounds_run(stage, arms, [NOTHING, DELETE], 24, 1, random.Random(3), lambda _: None)
    copied = {(sample.change.name, sample.peer.name): sample.copied_kib for sample in samples}
    assert len(copied) == 4
    for arm in ARMS:
        assert copied[NOTHING.name, arm] < 1500
        assert copied[DELETE.name, arm] > copied[NOTHING.name, arm]
    assert copied[DELETE.name, "hakmem"] * 3 < copied[DELETE.name, "glibc"]
