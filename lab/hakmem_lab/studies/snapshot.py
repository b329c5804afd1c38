"""What a snapshot costs redis: the pages that are copied because the server writes while its forked child saves.

A server is filled, then a third of its keys is deleted and others are added, so that its memory is as fragmented as
after some use. Then BGSAVE forks. The child is stopped immediately and the server writes to a share of its keys.
Each page that it touches for the first time since the fork is copied, and the original then belongs to the child
alone. So the child's Private_Dirty says exactly how many they were, whatever the speed of disk and machine. Then
the child continues to its end.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.allocators.bindings import bindings_complaint, linker_environment
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.errors import LabError
from hakmem_lab.grid import Grid
from hakmem_lab.measure.runner import Arm, Conditions
from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.tree import stat_fields
from hakmem_lab.studies.footprint import LIMIT, SUBJECT, Row, Spread, conditions_draw, round_order
from hakmem_lab.workloads.redis_server import Redis, command, redis_start

VALUE_LEAST, VALUE_MOST = 16, 16384
IDLE_SECONDS = 2.0
"""Time between the load and the snapshot, in which freed memory may return to the kernel."""
SNAPSHOT_SECONDS = 120.0

COLUMNS = (
    "change",
    "round",
    "order",
    "arm",
    "version",
    "identity",
    "seed",
    "padding",
    "keys",
    "keys_changed",
    "rss_kib",
    "copied_kib",
    "reported_cow_kib",
)


@dataclass(frozen=True)
class Change:
    """What is done to the chosen keys while the child lives."""

    name: str
    share: float


NOTHING = Change("nothing", 0)
CHANGES = (
    NOTHING,
    Change("delete a fifth", 0.2),
    Change("delete a fiftieth", 0.02),
    Change("overwrite a fifth, same size", 0.2),
    Change("overwrite a fifth, other size", 0.2),
    Change("append to a fifth", 0.2),
)


@dataclass(frozen=True)
class Sample:
    change: Change
    round: int
    order: int
    """Its position in the round."""
    peer: Peer
    conditions: Conditions
    keys: int
    keys_changed: int
    rss_kib: int
    """Memory of the server before the snapshot."""
    copied_kib: int
    reported_cow_kib: int
    """redis's own figure at the end of the child; it includes what the child dirtied itself."""

    def row(self) -> tuple[object, ...]:
        peer, conditions = self.peer, self.conditions
        run = (self.change.name, self.round, self.order, peer.name, peer.version, peer.identity)
        numbers = (self.keys, self.keys_changed, self.rss_kib, self.copied_kib, self.reported_cow_kib)
        return (*run, conditions.seed, conditions.padding, *numbers)


# ---- commands -------------------------------------------------------------------------------------------


def value_draw(rng: random.Random) -> int:
    """Each power of two is as likely as the next."""
    return int(VALUE_LEAST * (VALUE_MOST / VALUE_LEAST) ** rng.random())


class Load:
    """What the server holds: the keys and the lengths of their values. The same for every arm with the same seed."""

    FILLER = b"v" * (2 * VALUE_MOST)

    def __init__(self, seed: int, mebibytes: int) -> None:
        self.rng = random.Random(seed)
        self.sizes: dict[bytes, int] = {}
        self.bytes = mebibytes << 20

    def _set(self, key: bytes, size: int) -> bytes:
        self.sizes[key] = size
        return command(b"SET", key, self.FILLER[:size])

    def fill(self) -> Iterator[bytes]:
        held = 0
        while held < self.bytes:
            size = value_draw(self.rng)
            held += size
            yield self._set(b"key:%d" % len(self.sizes), size)

    def age(self) -> Iterator[bytes]:
        """Removes a third, and adds a sixth of other sizes."""
        for key in self.rng.sample(sorted(self.sizes), len(self.sizes) // 3):
            del self.sizes[key]
            yield command(b"DEL", key)
        for number in range(len(self.sizes) // 4):
            yield self._set(b"new:%d" % number, value_draw(self.rng))

    def change(self, change: Change) -> Iterator[bytes]:
        for key in self.rng.sample(sorted(self.sizes), int(len(self.sizes) * change.share)):
            if change.name.startswith("delete"):
                yield command(b"DEL", key)
            elif change.name.startswith("append"):
                yield command(b"APPEND", key, self.FILLER[:32])
            else:
                same = change.name.endswith("same size")
                yield self._set(key, self.sizes[key] if same else value_draw(self.rng))


# ---- one snapshot ---------------------------------------------------------------------------------------


def smaps_kib(pid: int, field: str) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(rf"^{field}: *(\d+) kB", text, re.MULTILINE)
    if found is None:
        raise LabError(f"the kernel does not say {field}")
    return int(found[1])


def child_of(pid: int) -> int:
    """The only child."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if len(children) != 1:
        raise LabError(f"the server has {len(children)} children, not one")
    return int(children[0])


def copied_kib(redis: Redis, commands: Iterator[bytes]) -> int:
    """What the COMMANDS copy. The child then continues its work."""
    child = child_of(redis.pid)
    os.kill(child, signal.SIGSTOP)
    try:
        stop_wait(child)
        before = smaps_kib(child, "Private_Dirty")
        redis.send(commands)
        return smaps_kib(child, "Private_Dirty") - before
    finally:
        os.kill(child, signal.SIGCONT)


def stop_wait(pid: int) -> None:
    deadline = time.monotonic() + SNAPSHOT_SECONDS
    while (state := stat_fields(pid)[0]) != "T":
        if state == "Z":
            raise LabError("the snapshot ended before it could be inspected: use more --mebibytes")
        if time.monotonic() > deadline:
            raise LabError("the child that writes the snapshot does not stop")
        time.sleep(0.001)


def snapshot_wait(redis: Redis) -> dict[str, str]:
    deadline = time.monotonic() + SNAPSHOT_SECONDS
    while (info := redis.info("persistence"))["rdb_bgsave_in_progress"] != "0":
        if time.monotonic() > deadline:
            raise LabError("the snapshot does not end")
        time.sleep(0.05)
    if info["rdb_last_bgsave_status"] != "ok":
        raise LabError("the snapshot failed")
    return info


def snapshot_run(
    stage: Stage, arm: Arm, change: Change, mebibytes: int, number: int, order: int, conditions: Conditions
) -> Sample:
    load = Load(conditions.seed, mebibytes)
    with redis_start(stage.folder / "redis", arm, conditions) as redis:
        served_check(redis, arm)
        redis.send(load.fill())
        redis.send(load.age())
        keys = len(load.sizes)
        time.sleep(IDLE_SECONDS)
        rss = smaps_kib(redis.pid, "Rss")
        redis.ask("BGSAVE")
        copied = copied_kib(redis, load.change(change))
        reported = int(snapshot_wait(redis)["rdb_last_cow_size"]) // 1024
    changed = int(keys * change.share)
    return Sample(change, number, order, arm.peer, conditions, keys, changed, rss, copied, reported)


def served_check(redis: Redis, arm: Arm) -> None:
    library = arm.peer.library
    if library is None or str(library.resolve()) not in Path(f"/proc/{redis.pid}/maps").read_text():
        raise LabError(f"{arm.name} was not mapped: it did not serve the process")


def service_prove(stage: Stage, arm: Arm, conditions: Conditions) -> None:
    """From the dynamic linker's own record of one run."""
    folder = stage.folder / "bindings"
    folder.mkdir()
    extra = dict(linker_environment(folder / "process"))
    with redis_start(stage.folder / "redis", arm, conditions, extra) as redis:
        redis.ask("PING")
    texts = [path.read_text(errors="replace") for path in sorted(folder.iterdir())]
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert arm.peer.library is not None
    complaint = bindings_complaint(texts, arm.peer.library, Path("none"))
    if complaint:
        raise LabError(f"{arm.name} did not serve the server: {complaint}")


def rounds_run(
    stage: Stage,
    arms: Sequence[Arm],
    changes: Sequence[Change],
    mebibytes: int,
    rounds: int,
    rng: random.Random,
    keep: Callable[[Sample | None], None],
) -> list[Sample]:
    """KEEP gets every sample as soon as it is there, and None for each run of the proof."""
    for arm in arms:
        service_prove(stage, arm, conditions_draw(rng))
        keep(None)
    samples: list[Sample] = []
    for number in range(rounds):
        drawn = [conditions_draw(rng) for _ in changes]
        for order, (index, arm_index) in enumerate(round_order(len(changes), len(arms), rng)):
            sample = snapshot_run(
                stage, arms[arm_index], changes[index], mebibytes, number, order, drawn[index]
            )
            samples.append(sample)
            keep(sample)
    return samples


# ---- judging --------------------------------------------------------------------------------------------


def rows_make(samples: Sequence[Sample], peers: Sequence[str]) -> list[Row]:
    """In the order of CHANGES, with the peers in theirs."""
    rows = []
    for change in CHANGES:
        mine = [sample for sample in samples if sample.change == change]
        if mine:
            values = {peer: [one.copied_kib for one in mine if one.peer.name == peer] for peer in peers}
            rows.append(Row(change.name, {peer: Spread.of(kib) for peer, kib in values.items()}))
    return rows


def judged(rows: Sequence[Row]) -> list[Row]:
    """The rows in which something was written; without writes there is no smallest."""
    return [row for row in rows if row.name != NOTHING.name]


def snapshot_grids(rows: Sequence[Row]) -> list[Grid]:
    peers = list(rows[0].kib)

    def verdict(row: Row) -> str:
        return "missed" if row.marked else "met"

    def sizes(row: Row) -> tuple[str, ...]:
        spreads = row.kib.values()
        return tuple(
            f"{spread.median / 1024:.1f} ({spread.low / 1024:.1f} to {spread.high / 1024:.1f})"
            for spread in spreads
        )

    return [
        Grid(
            title="Copied over the smallest of the row",
            columns=("while the child lives", f"{SUBJECT}, limit {LIMIT:g}", *peers),
            rows=tuple(
                (row.name, verdict(row), *(f"{row.ratio(peer):.2f}" for peer in peers))
                for row in judged(rows)
            ),
            text_columns=2,
        ),
        Grid(
            title="Copied in MiB: median (least to most)",
            columns=("while the child lives", *peers),
            rows=tuple((row.name, *sizes(row)) for row in rows),
        ),
    ]


def resident_grid(samples: Sequence[Sample], peers: Sequence[str]) -> Grid:
    def cells(peer: str) -> tuple[str, ...]:
        mine = [sample for sample in samples if sample.peer.name == peer]
        rss = Spread.of([sample.rss_kib for sample in mine])
        cow = Spread.of([sample.reported_cow_kib for sample in mine if sample.change == NOTHING] or [0])
        return (peer, f"{rss.median / 1024:.1f}", f"{cow.median / 1024:.1f}")

    return Grid(
        title="Around it, in MiB: medians",
        columns=("allocator", "resident before the snapshot", "redis's own figure where nothing was written"),
        rows=tuple(cells(peer) for peer in peers),
    )


def snapshot_lines(rows: Sequence[Row]) -> list[str]:
    counted = judged(rows)
    lines = [
        f"hakmem is above {LIMIT:g} of the smallest in {sum(row.marked for row in counted)}"
        f" of {len(counted)} rows."
    ]
    for peer in rows[0].kib:
        if peer != SUBJECT:
            ratios = [f"{row.kib[SUBJECT].median / row.kib[peer].median:.2f}" for row in counted]
            lines.append(f"Times as much as {peer}, row by row: {', '.join(ratios)}.")
    return lines


def snapshot_reading(rounds: int, mebibytes: int) -> list[str]:
    return [
        f"Debian's redis-server holds {mebibytes} MiB of values of {VALUE_LEAST} B to {VALUE_MOST >> 10} KiB,"
        " each power of two as likely as the next; a third of the keys is deleted and values of other sizes"
        f" come. {IDLE_SECONDS:g} s later BGSAVE forks; the child is stopped, the server changes the keys,"
        " and the growth of the child's Private_Dirty is what was copied: pages that the server wrote to for"
        " the first time since the fork. Pages that the server gives back to the kernel meanwhile count too,"
        " though nothing is copied. Then the child saves everything, and must succeed.",
        f"Medians of the rounds ({rounds}), in each of which every change was made once under every"
        " allocator, in random order, with the same commands. Every run is a fresh server; that it is"
        " served was proved by the dynamic linker's own record, and by the server's mappings in every run."
        " glibc is preloaded like the others, since Debian's redis-server brings jemalloc along. redis"
        " itself turns huge pages off for its process.",
        "Overwriting copies at least the pages that get the new values, whatever the allocator: the server also"
        " writes its own tables. What is the allocator's is where the new values come to lie, and what"
        " it writes into freed blocks and beside them.",
    ]
