"""Every cell that the published matrix calls lost has its paragraph: what it is, what was tried, what it would take."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "docs/results/matrix.md"
PARAGRAPHS = ROOT / "docs/where-others-are-faster.md"
TABLE = "## Each workload against the best of all peers"


def section(text: str, title: str) -> str:
    assert title in text
    return text.split(title, 1)[1].split("\n## ", 1)[0]


def outcomes(matrix: str) -> dict[str, str]:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section(matrix, TABLE).splitlines()
        if line.startswith("| ")
    ]
    return {row[0]: row[2] for row in rows[2:]}


def quoted(name: str) -> str:
    return f"`` {name} ``" if "`" in name else f"`{name}`"


def unexplained(matrix: str, paragraphs: str) -> list[str]:
    return [
        name
        for name, outcome in outcomes(matrix).items()
        if outcome == "lost" and quoted(name) not in paragraphs
    ]


def test_every_lost_cell_has_its_paragraph() -> None:
    assert len(outcomes(MATRIX.read_text())) > 50
    assert unexplained(MATRIX.read_text(), PARAGRAPHS.read_text()) == []


def test_one_without_a_paragraph_would_be_seen() -> None:
    rows = "| name | group | outcome |\n| --- | --- | --- |\n| a | small | lost |\n| b | mid | open |\n| c | mid | lost |\n"
    assert unexplained(f"{TABLE}\n\n{rows}\n## Next\n", "In `c` and `b`.\n") == ["a"]
