from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hakmem_lab.allocators.peers import Peer, PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.measure.runner import Arm, Conditions
from hakmem_lab.measure.stage import Stage, staged
from hakmem_lab.studies import snapshot
from hakmem_lab.studies.footprint import arm_of
from hakmem_lab.studies.snapshot import CHANGES, COLUMNS, NOTHING, Change, Load, Sample
from hakmem_lab.workloads.redis_server import SERVER, command, redis_start
from lab_pairs import GLIBC, HAKMEM

DELETE = CHANGES[1]
PEERS = ["hakmem", "glibc"]


def sample_make(change: Change, peer: Peer, number: int, copied: int) -> Sample:
    return Sample(change, number, 0, peer, Conditions(1, 2, (0,)), 100, 20, 5000, copied, copied)


def samples_make(change: Change, hakmem: list[int], glibc: list[int]) -> list[Sample]:
    return [
        sample_make(change, peer, number, copied)
        for peer, values in ((HAKMEM.peer, hakmem), (GLIBC.peer, glibc))
        for number, copied in enumerate(values)
    ]


# ---- judging --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hakmem", "state"), [([900, 100, 110], "missed"), ([90, 90, 900], "met")])
def test_the_median_is_held_against_the_smallest(hakmem: list[int], state: str) -> None:
    rows = snapshot.rows_make(samples_make(DELETE, hakmem, [100, 99, 101]), PEERS)
    assert snapshot.snapshot_grids(rows)[0].rows[0][:2] == (DELETE.name, state)
    assert snapshot.snapshot_lines(rows)[0].endswith(f"in {int(state == 'missed')} of 1 rows.")


def test_where_nothing_was_written_nothing_is_judged() -> None:
    samples = samples_make(NOTHING, [50], [1]) + samples_make(DELETE, [50], [100])
    rows = snapshot.rows_make(samples, PEERS)
    assert [row.name for row in rows] == [NOTHING.name, DELETE.name]
    assert [row.name for row in snapshot.judged(rows)] == [DELETE.name]
    assert [len(grid.rows) for grid in snapshot.snapshot_grids(rows)] == [1, 2]
    assert snapshot.resident_grid(samples, PEERS).rows[0][0] == "hakmem"


def test_a_sample_fills_the_columns() -> None:
    assert len(sample_make(DELETE, HAKMEM.peer, 0, 1).row()) == len(COLUMNS)


# ---- commands -------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_commands() -> None:
    def all_of(seed: int) -> list[bytes]:
        load = Load(seed, 1)
        return [*load.fill(), *load.age(), *load.change(CHANGES[4])]

    assert all_of(1) == all_of(1) != all_of(2)


def test_a_change_touches_its_share_of_what_is_left() -> None:
    load = Load(1, 1)
    filled = len(list(load.fill()))
    list(load.age())
    assert filled / 2 < len(load.sizes) < filled
    assert len(list(load.change(DELETE))) == len(load.sizes) // 5
    assert list(load.change(NOTHING)) == []


# ---- the server -----------------------------------------------------------------------------------------


@pytest.fixture
def stage(build: Path) -> Stage:
    if not (build / "libhakmem.so").is_file():
        pytest.skip("libhakmem.so is not built: ./hakmem build")
    if shutil.which(SERVER) is None:
        pytest.skip(f"{SERVER} is not installed")
    checkout = Checkout.find(build)
    with staged(checkout) as stage:
        yield stage


def arms_of(stage: Stage) -> list[Arm]:
    return [arm_of(stage.peer(PeerStore(stage.checkout).obtain(name))) for name in PEERS]


def test_a_child_that_has_ended_does_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(LabError, match="more --mebibytes"):
            snapshot.stop_wait(ended.pid)
    with subprocess.Popen(["sleep", "60"]) as runs:
        monkeypatch.setattr(snapshot, "SNAPSHOT_SECONDS", 0.1)
        with pytest.raises(LabError, match="does not stop"):
            snapshot.stop_wait(runs.pid)
        runs.kill()


def test_a_server_that_the_arm_does_not_serve_is_refused(stage: Stage) -> None:
    other = Arm(Peer("other", "0", stage.folder / "other.so", "id"))
    with (
        pytest.raises(LabError, match="other was not mapped"),
        redis_start(stage.folder / "redis", arms_of(stage)[0], Conditions(1, 0, (0,))) as redis,
    ):
        snapshot.served_check(redis, other)


def test_what_the_server_refuses_is_an_error(stage: Stage) -> None:
    with (
        pytest.raises(LabError, match="redis-server answered: -ERR"),
        redis_start(stage.folder / "redis", arms_of(stage)[0], Conditions(1, 0, (0,))) as redis,
    ):
        redis.send([command(b"NOSUCH")])
