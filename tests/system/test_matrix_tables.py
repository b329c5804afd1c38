"""The tables of README, performance.md and where-others-are-faster.md have the figures of the matrix."""

import re
import sys
from pathlib import Path

import pytest
from toolbox import ROOT, run, run_well

TOOL = ROOT / "tools/matrix_tables.py"
FILES = (
    "tools/matrix_tables.py",
    "docs/results/matrix.md",
    "README.md",
    "docs/performance.md",
    "docs/where-others-are-faster.md",
)


def test_the_tables_are_the_pages() -> None:
    run_well(sys.executable, TOOL, "--check")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    return tmp_path


@pytest.mark.parametrize(
    ("name", "first_line"),
    [
        ("README.md", "| peer | real programs |"),
        ("docs/performance.md", "| times as fast as |"),
        ("docs/performance.md", "| workload | times as fast |"),
        ("docs/where-others-are-faster.md", "| cell | latest |"),
        ("docs/where-others-are-faster.md", "| cell | peak memory, latest |"),
    ],
)
def test_a_wrong_figure_is_found_and_mended(tree: Path, name: str, first_line: str) -> None:
    document = tree / name
    right = document.read_text()
    header, rule, row, *_ = right[right.index(first_line) :].splitlines()
    wrong = re.sub(r"(?<=\| )\d+\.", "97.", row, count=1)
    assert wrong != row
    document.write_text(right.replace(f"{header}\n{rule}\n{row}", f"{header}\n{rule}\n{wrong}"))
    result = run(sys.executable, tree / TOOL.relative_to(ROOT), "--check")
    assert result.returncode == 1
    assert str(document) in result.stderr
    run_well(sys.executable, tree / TOOL.relative_to(ROOT))
    assert document.read_text() == right


@pytest.mark.parametrize(
    ("name", "text", "wrong", "message"),
    [
        (
            "docs/results/matrix.md",
            "## Speed: ",
            "## Haste: ",
            "there is no table \"Speed: hakmem's over each peer's\"",
        ),
        (
            "docs/where-others-are-faster.md",
            "| `hand-over of",
            "| `hang-over of",
            "has no '`hang-over of 1000 blocks`'",
        ),
    ],
)
def test_what_the_page_does_not_have_is_named(
    tree: Path, name: str, text: str, wrong: str, message: str
) -> None:
    document = tree / name
    document.write_text(document.read_text().replace(text, wrong))
    result = run(sys.executable, tree / TOOL.relative_to(ROOT))
    assert result.returncode == 1
    assert message in result.stderr


def test_an_argument_that_is_mistyped_does_not_pass() -> None:
    assert run(sys.executable, TOOL, "--chek").returncode == 2
