from __future__ import annotations

from hakmem_lab.studies.callgrind import instructions_by_object
from hakmem_lab.studies.instructions import PAIRS, pair_cost, passage_cost

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


def test_own_instructions_are_told_from_callees() -> None:
    counts = instructions_by_object(FILE.splitlines(keepends=True))
    assert counts == {"/bench/lifo_burst": 117, "/lib/liballocator.so": 700, "/lib/libc.so.6": 300}
    assert sum(counts.values()) == 1117


def model(blocks: int, cycles: int) -> int:
    """35 a pair, 28 more for each block beyond a depth of 4096, 90 000 for the start."""
    return 90_000 + cycles * (35 * blocks + 28 * max(0, blocks - 4096))


def test_differences_leave_start_and_depth_out() -> None:
    assert pair_cost(model) == 35
    assert passage_cost(model, 16384) - pair_cost(model) == 28
    assert PAIRS >= 10_000
