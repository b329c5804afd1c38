from __future__ import annotations

import random
from pathlib import Path

import pytest
from hakmem_lab.allocators.bindings import bindings_complaint
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.measure.runner import Conditions
from hakmem_lab.studies.footprint import (
    COLUMNS,
    Sample,
    arm_of,
    footprint_grids,
    footprint_lines,
    round_order,
    rows_make,
    tools_check,
)
from hakmem_lab.workloads.footprint_inputs import (
    PROGRAMS,
    Program,
    inputs_make,
    programs_chosen,
    redis_commands,
    repository_stream,
)
from hakmem_lab.workloads.installed import package_of
from lab_pairs import GLIBC, HAKMEM

SMALL = Program("small", ("small",), "small")
SERVER = Program("server", ("server",), "server", at_exit="at its exit")


def sample_make(program: Program, peer: Peer, number: int, peak: int, rss: int = 50) -> Sample:
    return Sample(program, number, 0, peer, Conditions(1, 2, (0,)), peak, rss, rss)


PEERS = ["hakmem", "glibc"]


def samples_make(program: Program, hakmem: list[int], glibc: list[int]) -> list[Sample]:
    return [
        sample_make(program, peer, number, peak)
        for peer, peaks in ((HAKMEM.peer, hakmem), (GLIBC.peer, glibc))
        for number, peak in enumerate(peaks)
    ]


# ---- judging --------------------------------------------------------------------------------------------


def test_medians_are_compared_with_the_smallest_of_the_row() -> None:
    row = rows_make(samples_make(SMALL, [110, 100, 900], [100, 99, 101]), PEERS)[0]
    assert row.kib["hakmem"].median == 110
    assert row.ratio("hakmem") == pytest.approx(1.1)
    assert row.ratio("glibc") == 1
    assert row.kib["glibc"].percent == pytest.approx(2)


@pytest.mark.parametrize(("hakmem", "marked"), [(104, False), (105, False), (106, True), (50, False)])
def test_a_row_above_the_limit_is_marked(hakmem: int, marked: bool) -> None:
    rows = rows_make(samples_make(SMALL, [hakmem], [100]), PEERS)
    assert rows[0].marked is marked
    assert footprint_grids(rows)[0].rows[0][1] == ("missed" if marked else "met")
    assert footprint_lines(rows)[0] == f"hakmem is above 1.05 of the smallest in {int(marked)} of 1 rows."


def test_the_largest_ratio_comes_first_and_an_exit_is_a_row_of_its_own() -> None:
    samples = samples_make(SERVER, [90], [100]) + samples_make(SMALL, [200], [100])
    assert [row.name for row in rows_make(samples, PEERS)] == ["small", "server", "server, at its exit"]


def test_a_sample_fills_the_columns() -> None:
    assert len(sample_make(SMALL, HAKMEM.peer, 0, 1).row()) == len(COLUMNS)


def test_a_round_runs_everything_once() -> None:
    order = round_order(3, 4, random.Random(1))
    assert sorted(order) == [(program, arm) for program in range(3) for arm in range(4)]
    assert order != sorted(order)


# ---- the proof of service -----------------------------------------------------------------------------------


def binding(source: str, target: str, symbol: str = "malloc") -> str:
    return f"  12:\tbinding file {source} [0] to {target} [0]: normal symbol `{symbol}' [GLIBC_2.2.5]\n"


LIBRARY = Path("/peers/libpeer.so")
TOOL = Path("/bench/peak_memory")


def complaint(*texts: str) -> str:
    return bindings_complaint(texts, LIBRARY, TOOL)


def test_a_process_whose_malloc_leads_to_the_library_is_served() -> None:
    text = binding("/bin/one", str(LIBRARY)) + binding("/lib/libc.so.6", str(LIBRARY), "free")
    assert complaint(text) == ""


def test_the_tool_itself_stays_on_its_own() -> None:
    own = binding(str(TOOL), "/lib/libc.so.6")
    assert complaint(own, binding("/bin/one", str(LIBRARY))) == ""
    assert complaint(own) == "the dynamic linker bound no malloc to it"


def test_another_allocator_in_any_process_is_seen() -> None:
    text = binding("/bin/one", str(LIBRARY))
    assert complaint(text, text + binding("/bin/two", "/lib/other.so", "free")) == (
        "free of two is bound to other.so"
    )


def test_a_program_with_its_own_malloc_is_seen() -> None:
    own = binding("/bin/one", "/bin/one") + binding("/lib/libc.so.6", "/bin/one")
    assert "malloc of one is bound to one" in complaint(own)


def test_a_program_that_lends_its_jump_to_malloc_is_served() -> None:
    text = binding("/bin/one", "/bin/one") + binding("/lib/libc.so.6", "/bin/one")
    assert complaint(text + binding("/bin/one", str(LIBRARY))) == ""


def test_glibc_is_an_arm_like_any_other() -> None:
    library = arm_of(GLIBC.peer).peer.library
    assert library is not None
    assert library.name == "libc.so.6"


# ---- programs and inputs --------------------------------------------------------------------------------------


def test_a_missing_program_is_named_with_its_package(tmp_path: Path) -> None:
    table = tmp_path / "tests/system/tools.txt"
    table.parent.mkdir(parents=True)
    table.write_text("# tools\nredis-cli    redis-tools\n")
    checkout = Checkout(tmp_path, tmp_path)
    programs = programs_chosen(["redis"])
    with pytest.raises(LabError, match=r"not installed: redis-server, redis-cli .*redis-server redis-tools"):
        tools_check(checkout, programs, str(tmp_path))
    assert package_of(checkout, "unknown") == "unknown"


def test_every_tool_has_a_package() -> None:
    checkout = Checkout.find()
    known = (checkout.root / "tests/system/tools.txt").read_text()
    for program in PROGRAMS:
        assert all(f"\n{tool} " in known for tool in program.tools)


def test_places_in_a_command_are_filled() -> None:
    for program in PROGRAMS:
        filled = program.filled(Path("/inputs"), Path("/bench"), 7)
        assert not any("{" in argument for argument in filled)


def test_the_seed_decides_the_inputs(tmp_path: Path) -> None:
    contents = []
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        inputs_make(tmp_path / name, seed)
        contents.append((tmp_path / name / "redis.commands").read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_commands_of_redis_say_their_lengths() -> None:
    text = redis_commands(random.Random(1), keys=4)
    assert text.startswith(b"*3\r\n$3\r\nSET\r\n$5\r\nkey:0\r\n$")
    assert text.count(b"\r\nSET\r\n") == 6
    assert text.count(b"\r\nHSET\r\n") == 2
    assert text.count(b"\r\nDEL\r\n") == 2 + 2


def test_a_repository_has_its_commits() -> None:
    text = repository_stream(random.Random(1), commits=3, files=5)
    assert text.count(b"commit refs/heads/main\n") == 3
    assert text.count(b"\nM 100644 inline ") + text.count(b"\n\nM 100644") >= 5
