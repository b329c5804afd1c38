"""The instructions of every entry point and slow path, kept as reviewed text in tests/golden/paths.release.txt; and what the
ceiling leaves of the fast paths.

After a change that is meant: python -m pytest tests/system/test_paths.py --update, review the difference, and say why in the
table of docs/results/instructions.md. The text is compared where the compiler is the one that it was made with.
"""

import platform
from pathlib import Path

import pytest
from fast_path import disassemble, entry_points, follow
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.instructions import paths_text
from hakmem_lab.studies.paths import digest, reasons
from toolbox import ROOT, Build, cannot_run, tool

GOLDEN = ROOT / "tests/golden/paths.release.txt"
REASONS = ROOT / "docs/results/instructions.md"

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86-64 code")


@pytest.mark.slow
def test_is_the_reviewed_text(build: Build, update: bool) -> None:
    tool("valgrind")
    text = paths_text(Checkout.find(build.directory))
    if update:
        GOLDEN.write_text(text)
    reviewed = GOLDEN.read_text()
    if reviewed.splitlines()[0] != text.splitlines()[0]:
        pytest.skip(f"the reviewed text is of another compiler: {reviewed.splitlines()[0]}")
    assert text == reviewed


def test_the_reviewed_text_has_its_reason() -> None:
    found = reasons(REASONS.read_text())
    assert digest(GOLDEN.read_text()) in found, (
        f"no reason for `{digest(GOLDEN.read_text())}` in {REASONS.name}"
    )
    assert all(len(reason.split()) > 3 for reason in found.values())


def bare_library(build: Build, name: str) -> Path:
    library = build.directory / f"bench/lib{name}.so"
    if not library.exists():
        cannot_run(f"{library.name} was not built")
    return library


@pytest.mark.parametrize("symbol", ["malloc", "free"])
def test_the_ceiling_is_the_fast_path_without_its_checks(build: Build, symbol: str) -> None:
    """No branch is left, and neither the bounds, nor the range of the window, nor the owner; but all the rest is."""
    objdump = tool("objdump")
    paths = {}
    for name, library in (("hakmem", build.library), ("ceiling", bare_library(build, "ceiling"))):
        paths[name] = follow(disassemble(objdump, library), symbol, entry_points(library)[symbol])
    own, bare = paths["hakmem"], paths["ceiling"]
    assert bare.conditional_branches == 0, bare.text()
    assert bare.stores == own.stores, bare.text()
    checks = own.conditional_branches
    # Each check compares and branches; one of free's takes the owner from the word, which is a load less, too.
    assert len(bare.instructions) <= len(own.instructions) - 2 * checks, bare.text()
    assert own.loads - checks <= bare.loads < own.loads, bare.text()


def test_the_null_allocator_does_less_than_the_ceiling(build: Build) -> None:
    objdump = tool("objdump")
    counts = {}
    for name in ("ceiling", "null"):
        library = bare_library(build, name)
        code, entries = disassemble(objdump, library), entry_points(library)
        counts[name] = [
            len(follow(code, symbol, entries[symbol]).instructions) for symbol in ("malloc", "free")
        ]
    assert counts["null"][0] < counts["ceiling"][0]
    assert counts["null"][1] < counts["ceiling"][1]
