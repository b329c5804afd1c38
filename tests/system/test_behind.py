"""Every cell that the published matrix calls lost, or estimates low, has its paragraph: what it is, what was tried, what it would take."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "docs/results/matrix.md"
PARAGRAPHS = ROOT / "docs/where-others-are-faster.md"
TABLE = "## Each workload against the best of all peers"


def section(text: str, title: str) -> str:
    assert title in text
    return text.split(title, 1)[1].split("\n## ", 1)[0]


LOW = 0.96  # of the best peer, or less


def behind(matrix: str) -> dict[str, bool]:
    """Of each cell whether it needs one."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section(matrix, TABLE).splitlines()
        if line.startswith("| ")
    ]
    return {row[0]: row[2] == "lost" or float(row[4].split()[0]) <= LOW for row in rows[2:]}


def quoted(name: str) -> str:
    return f"`` {name} ``" if "`" in name else f"`{name}`"


def unexplained(matrix: str, paragraphs: str) -> list[str]:
    return [
        name for name, needs_one in behind(matrix).items() if needs_one and quoted(name) not in paragraphs
    ]


def test_every_such_cell_has_its_paragraph() -> None:
    assert len(behind(MATRIX.read_text())) > 50
    assert unexplained(MATRIX.read_text(), PARAGRAPHS.read_text()) == []


def test_one_without_a_paragraph_would_be_seen() -> None:
    rows = (
        "| name | group | outcome | peer | times as fast |\n| --- | --- | --- | --- | ---: |\n"
        "| a | small | lost | x | 0.97 (0.96 to 0.97) |\n| b | mid | open | x | 1.01 (0.90 to 1.10) |\n"
        "| c | mid | lost | x | 0.50 (0.40 to 0.60) |\n| d | mid | open | x | 0.96 (0.90 to 1.10) |\n"
    )
    assert unexplained(f"{TABLE}\n\n{rows}\n## Next\n", "In `c`.\n") == ["a", "d"]
