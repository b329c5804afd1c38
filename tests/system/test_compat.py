"""docs/compat.md keeps its word: every item has tests and planted defects, and all of them are there."""

import re
import tomllib

import pytest
from toolbox import ROOT

TEXT = (ROOT / "docs/compat.md").read_text()
HEADING = re.compile(r"^## (\d+)\. ", re.MULTILINE)
COLUMNS = ["clause", "tests", "planted defects", "builds"]
ITEMS = range(1, 16)


def section(item: int) -> str:
    """The text under an item's heading; 0 is what comes after the fifteen."""
    heading = r"## Also\n" if item == 0 else rf"## {item}\. "
    found = re.search(rf"^{heading}(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"item {item} is missing"
    return found[1]


def rows(item: int) -> list[list[str]]:
    lines = [line for line in section(item).splitlines() if line.startswith("| ")]
    table = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines]
    assert table, f"item {item} has no table"
    assert table[0] == COLUMNS
    assert all(len(row) == len(COLUMNS) for row in table), table
    return table[1:]


def names(item: int, column: str) -> set[str]:
    position = COLUMNS.index(column)
    return {name for row in rows(item) for name in re.findall(r"`([^`]+)`", row[position])}


def test_the_fifteen_are_there() -> None:
    assert [int(number) for number in HEADING.findall(TEXT)] == list(ITEMS)


@pytest.mark.parametrize("item", [*ITEMS, 0])
def test_every_clause_has_a_test(item: int) -> None:
    assert rows(item)
    for clause, tests, _, builds in rows(item):
        assert re.search(r"`[^`]+`", tests), clause
        assert builds, clause
    files = {name for name in names(item, "tests") if not name.endswith("/")}  # the others are CTest's
    missing = [name for name in files if not (ROOT / "tests" / name).is_file()]
    assert not missing


@pytest.mark.parametrize("item", [*ITEMS, 0])
def test_every_item_has_a_planted_defect(item: int) -> None:
    named = names(item, "planted defects")
    assert named
    for name in named:
        defect = tomllib.loads((ROOT / f"tests/defects/{name}.toml").read_text())
        assert defect["item"] == item, name


def test_every_defect_of_an_item_is_in_the_table() -> None:
    for path in sorted((ROOT / "tests/defects").glob("*.toml")):
        if path.stem.startswith("spec_"):
            continue  # of the interface, not of a place where allocators break
        item = tomllib.loads(path.read_text())["item"]
        assert path.stem in names(item, "planted defects"), path.stem
