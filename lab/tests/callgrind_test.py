from __future__ import annotations

import os
from pathlib import Path

import pytest
from hakmem_lab.studies import callgrind
from hakmem_lab.studies.callgrind import Call, Place, profile_read, profile_run
from hakmem_lab.studies.instructions import PAIRS, pair_cost, passage_cost

VALGRIND = r"""#!/bin/sh
for word; do
    case $word in
        --callgrind-out-file=*) printf 'ob=/bin/pr\351g\nfn=main\n1 5\n' >"${word#*=}" ;;
    esac
done
"""
FILE = """\
version: 1
creator: callgrind
events: Ir
summary: 1117

ob=/bench/lifo_burst
fl=lifo_burst.c
fn=main
10 100
+1 7
cob=/lib/liballocator.so
cfi=malloc.c
cfn=malloc
calls=5 0
12 1000
* 10

ob=/lib/liballocator.so
fl=malloc.c
fn=malloc
3 600
fi=other.c
4 100
cob=/lib/libc.so.6
cfn=memset
calls=1 0
5 300

ob=/lib/libc.so.6
fl=memset.S
fn=memset
0 300

totals: 1117
"""

BY_ADDRESS = """\
positions: instr line
events: Ir

ob=/lib/liballocator.so
fl=src/api/malloc.c
fn=malloc
0x1000 20 3
fi=src/heap/front.h
0x1004 80 5
fe=src/api/malloc.c
0x1008 21 3
cfn=malloc_slow
calls=2 0x2000 30
0x1008 21 90
0x100c 0 1

fn=malloc_slow
0x2000 30 40
cob=/lib/libc.so.6
cfn=memset
calls=1 0x50 0
0x2004 31 50
"""


def test_own_instructions_are_told_from_callees() -> None:
    counts = profile_read(FILE.splitlines(keepends=True)).by_object()
    assert counts == {"/bench/lifo_burst": 117, "/lib/liballocator.so": 700, "/lib/libc.so.6": 300}
    assert sum(counts.values()) == 1117


def test_calls_are_counted_with_what_they_cost() -> None:
    profile = profile_read(FILE.splitlines(keepends=True))
    malloc = Call("/bench/lifo_burst", "/lib/liballocator.so", "malloc")
    memset = Call("/lib/liballocator.so", "/lib/libc.so.6", "memset")
    assert profile.calls == {malloc: 5, memset: 1}
    assert profile.inclusive == {malloc: 1000, memset: 300}


def test_lines_go_on_from_the_one_before() -> None:
    places = {
        place.line: cost for place, cost in profile_read(FILE.splitlines()).costs.items() if place.line > 9
    }
    # 10, then one further; after the call's line 12 the same again.
    assert places == {10: 100, 11: 7, 12: 10}


def test_addresses_stand_beside_lines_and_inlined_code_in_its_own_file() -> None:
    profile = profile_read(BY_ADDRESS.splitlines(keepends=True))
    library = "/lib/liballocator.so"
    assert profile.costs == {
        Place(library, "malloc", "src/api/malloc.c", 20, 0x1000): 3,
        Place(library, "malloc", "src/heap/front.h", 80, 0x1004): 5,
        Place(library, "malloc", "src/api/malloc.c", 21, 0x1008): 3,
        Place(library, "malloc", "src/api/malloc.c", 0, 0x100C): 1,
        Place(library, "malloc_slow", "src/api/malloc.c", 30, 0x2000): 40,
    }


def test_a_callee_without_an_object_is_of_the_callers() -> None:
    profile = profile_read(BY_ADDRESS.splitlines(keepends=True))
    library = "/lib/liballocator.so"
    assert profile.calls[Call(library, library, "malloc_slow")] == 2
    assert profile.inclusive[Call(library, library, "malloc_slow")] == 90
    assert profile.calls[Call(library, "/lib/libc.so.6", "memset")] == 1


def model(blocks: int, cycles: int) -> int:
    """35 a pair, 28 more for each block beyond a depth of 4096, 90 000 for the start."""
    return 90_000 + cycles * (35 * blocks + 28 * max(0, blocks - 4096))


def test_differences_leave_start_and_depth_out() -> None:
    assert pair_cost(model) == 35
    assert passage_cost(model, 16384) - pair_cost(model) == 28
    assert PAIRS >= 10_000


def test_names_may_hold_any_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    valgrind = tmp_path / "valgrind"
    valgrind.write_text(VALGRIND)
    valgrind.chmod(0o755)
    monkeypatch.setattr(callgrind, "valgrind_find", lambda: str(valgrind))
    profile, _ = profile_run(["program"], {"PATH": os.defpath}, (), tmp_path)
    assert profile.by_object() == {"/bin/pr\N{REPLACEMENT CHARACTER}g": 5}
