from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hakmem_lab.sight.books import ClassBooks
from hakmem_lab.sight.window import View, Why, WindowPages, overlap, slab_heads, window_pages
from lab_sight import BASE, KERNEL_PAGE, BytesMemory, view_make

PAGES, HEAP_WORD = 64, 0x1000 << 8
BITS = 0x5000_0000


def shape(block_bytes: int, blocks: int, pages: int) -> ClassBooks:
    return ClassBooks(block_bytes, blocks, pages, slack_most=15)


SMALL, MIDDLE, LARGE = shape(48, 1365, 1), shape(2560, 51, 2), shape(65536, 8, 8)
MEDIUM = shape(262144, 1, 4)
CLASSES = (SMALL, MIDDLE, LARGE, MEDIUM)


def slab_put(view: View, head: int, number: int, carved: int, bits_address: int, age: int = 0) -> None:
    """As the library does it: of a slab with one block only the first page has a word and names its head."""
    pages, blocks = CLASSES[number].pages, CLASSES[number].blocks
    named = 1 if blocks == 1 else pages
    view.words[head : head + named] = HEAP_WORD | number
    view.records["head"][head : head + named] = head
    view.records["carved"][head] = carved
    view.records["age"][head] = age
    view.records["bits"][head] = bits_address
    view.chunks["used"][head // 32] |= np.uint32(((1 << pages) - 1) << head % 32)
    view.chunks["touched"][head // 32] |= np.uint32(((1 << pages) - 1) << head % 32)


def bitmap(free: list[int], blocks: int) -> bytes:
    value = sum(1 << block for block in free)
    return value.to_bytes(-(-blocks // 64) * 8, "little")


def account(view: View, bits: bytes = b"") -> WindowPages:
    return window_pages(view, CLASSES, BytesMemory({BITS: bits}))


def slowly(number: int, carved: int, free: list[int], resident: np.ndarray) -> dict[str, int]:
    """The same by looking at every byte."""
    one = CLASSES[number]
    in_use = {block for block in range(carved) if block not in set(free)}
    counts = {"taken": 0, "beside": 0, "holes": 0, "ends": 0}
    for page in np.flatnonzero(resident.reshape(-1)).tolist():
        blocks = [byte // one.block_bytes for byte in range(page * KERNEL_PAGE, (page + 1) * KERNEL_PAGE)]
        pinned = any(block in in_use for block in blocks)
        for block in blocks:
            if block >= one.blocks:
                counts["ends"] += 1
            elif block in in_use:
                counts["taken"] += 1
            else:
                counts["beside" if pinned else "holes"] += 1
    return counts


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_slab_is_accounted_for_byte_by_byte(number: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = CLASSES[number]
    carved = int(rng.integers(1, one.blocks + 1))
    share = rng.random()
    free = [block for block in range(carved) if rng.random() < share]
    view = view_make(PAGES)
    slab_put(view, 34, number, carved, BITS)
    view.resident[34 : 34 + one.pages] = rng.random((one.pages, 16)) < 0.7
    found = account(view, bitmap(free, one.blocks))
    expected = slowly(number, carved, free, view.resident[34 : 34 + one.pages])
    seen = {"taken": found.taken, "beside": found.beside, "holes": found.classes[0].holes, "ends": found.ends}
    assert seen == expected
    assert found.holes.total() == expected["holes"]
    assert found.total == int(view.resident.sum()) * KERNEL_PAGE


def test_many_slabs_are_taken_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hakmem_lab.sight.window.SLABS_AT_ONCE", 3)
    view = view_make(PAGES)
    for place in range(10):
        slab_put(view, 32 + place, 0, 1365, BITS)
        view.resident[32 + place] = True
    found = account(view, bitmap([], 1365))
    assert (found.classes[0].slabs, found.taken) == (10, 10 * 1365 * 48)


@pytest.mark.parametrize(
    ("age", "changes", "huge", "why"),
    [
        (0, {}, False, Why.CHANGED),
        (0, {"purging": False}, False, Why.UNATTENDED),
        (255, {}, False, Why.REFUSED),
        (255, {"decay_is_never": True}, False, Why.NEVER),
        (0, {}, True, Why.HUGE),
    ],
)
def test_why_holes_stay(age: int, changes: dict[str, bool], huge: bool, why: Why) -> None:
    view = view_make(PAGES, huge=np.array([False, huge]), **changes)
    slab_put(view, 40, 0, 1365, BITS, age)
    view.resident[40] = True
    found = account(view, bitmap(list(range(1, 1365)), 1365))
    assert dict(found.holes) == {why: 15 * KERNEL_PAGE - (65536 - 1365 * 48)}


def test_what_a_huge_page_brought_in() -> None:
    """Blocks that were never carved, and pages that were never used."""
    view = view_make(PAGES, huge=np.array([False, True]))
    slab_put(view, 32, 0, 10, BITS)
    view.resident[32:64] = True
    found = account(view, bitmap([], 1365))
    assert found.taken == 480
    assert found.beside == KERNEL_PAGE - 480
    assert found.untouched == 31 * 65536 + 15 * KERNEL_PAGE - found.ends
    assert found.total == 32 * 65536


def test_large_blocks_and_what_lies_behind_them() -> None:
    view = view_make(PAGES)
    view.words[33] = 127
    view.records["pages"][33], view.records["block_pages"][33] = 6, 4
    view.chunks["used"][1] = 0b1111110
    view.resident[33:39] = True
    view.resident[34, :8] = False
    found = account(view)
    assert (found.large, found.reserve, found.changing) == (4 * 65536 - 8 * KERNEL_PAGE, 2 * 65536, 0)


def test_free_pages_by_why_they_stay() -> None:
    view = view_make(PAGES)
    view.resident[32:36] = True
    view.chunks["touched"][1], view.chunks["refused"][1] = 0b0111, 0b0100
    found = account(view)
    assert found.free[Why.WAITING] == 2 * 65536
    assert found.free[Why.REFUSED] == 65536
    assert found.untouched == 65536
    assert account(replace(view, purging=False)).free[Why.UNATTENDED] == 2 * 65536
    never = account(replace(view, decay_is_never=True))
    assert never.free[Why.NEVER] == 2 * 65536


def test_what_is_being_taken_is_no_ones_yet() -> None:
    view = view_make(PAGES)
    view.chunks["used"][1] = 1
    view.resident[32] = True
    assert account(view).changing == 65536


def test_medium_blocks_in_use_and_in_caches() -> None:
    """They are slabs, of whose pages only the first has a word; in use they count as large ones."""
    view = view_make(PAGES)
    for head in (32, 36):
        slab_put(view, head, 3, 1, BITS)
    view.words[40] = 127
    view.records["pages"][40] = view.records["block_pages"][40] = 2
    view.chunks["used"][1] |= np.uint32(0b11 << 8)
    slab_put(view, 44, 0, 1365, BITS)
    view.resident[32:42] = view.resident[44] = True
    view.resident[33, :8] = view.resident[37, :4] = False
    view = replace(view, cached={3: np.array([BASE + 36 * 65536])})
    found = account(view, bitmap([], 1365))
    assert [(one.block_bytes, one.slabs) for one in found.classes] == [(48, 1), (262144, 2)]
    assert found.live_small == 1365 * 48
    assert found.cached == 4 * 65536 - 4 * KERNEL_PAGE
    assert found.unclassed == 2 * 65536
    assert found.large == found.unclassed + 4 * 65536 - 8 * KERNEL_PAGE
    assert (found.changing, found.holes.total()) == (0, 0)
    assert found.total == int(view.resident.sum()) * KERNEL_PAGE


def test_a_medium_block_that_came_back() -> None:
    view = view_make(PAGES)
    slab_put(view, 32, 3, 1, BITS)
    view.resident[32:34] = True
    found = account(view, bitmap([0], 1))
    assert (found.taken, found.large, found.changing) == (0, 0, 0)
    assert dict(found.holes) == {Why.CHANGED: 2 * 65536}


def test_a_medium_block_that_became_a_large_one() -> None:
    """Its length was changed; the record still has what the slab's had."""
    view = view_make(PAGES)
    slab_put(view, 32, 3, 1, BITS)
    view.words[32] = 127
    view.records["pages"][32], view.records["block_pages"][32] = 4, 3
    view.resident[32:36] = True
    found = account(view, bitmap([], 1))
    assert found.classes == []
    assert (found.large, found.reserve) == (3 * 65536, 65536)


def test_a_record_that_was_left_behind_is_no_slab() -> None:
    """Its word says that it is none; or the record names another head."""
    view = view_make(PAGES)
    slab_put(view, 40, 1, 5, BITS)
    view.words[40:42] = 0
    assert slab_heads(view, 1, 2).tolist() == []
    slab_put(view, 63, 0, 5, BITS)
    view.records["head"][63] = 62
    assert slab_heads(view, 0, 1).tolist() == []


def test_overlaps_are_every_byte_of_the_blocks() -> None:
    for one in CLASSES:
        bytes_on_pages = overlap(one.block_bytes, one.blocks, 16 * one.pages, KERNEL_PAGE)
        assert (bytes_on_pages.sum(axis=1) == one.block_bytes).all()
        assert bytes_on_pages.sum(axis=0).max() <= KERNEL_PAGE


def test_cached_blocks_count_as_far_as_they_are_resident() -> None:
    view = view_make(PAGES)
    slab_put(view, 34, 0, 200, BITS)
    view.resident[34, :2] = True
    start = BASE + 34 * 65536
    across, there, absent = start + 85 * 48, start, start + 199 * 48
    other = BASE - 48
    view = replace(view, cached={0: np.array([across, there, absent, other])})
    found = account(view, bitmap([], 1365))
    assert found.cached == 48 + 48
    view.resident[34, 1] = False
    assert account(view, bitmap([], 1365)).cached == 48 + (4096 - 85 * 48)
