"""Writes the figures of docs/results/matrix.md into the tables of README.md, docs/performance.md and docs/where-others-are-faster.md.

    python3 tools/matrix_tables.py            write them
    python3 tools/matrix_tables.py --check    fail if a table differs

A table is found by its first line. Its rows keep their names and their order; what each stands for is written down here. Only the table of
what is slower than the best peer has rows of its own choice: as many as the page has. Of where-others-are-faster.md only the column *latest*
is written, of every table that has one.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE, README, PERFORMANCE, BEHIND = (
    ROOT / name
    for name in (
        "docs/results/matrix.md",
        "README.md",
        "docs/performance.md",
        "docs/where-others-are-faster.md",
    )
)

SPEED = "Speed: hakmem's over each peer's"
GROUPS = "Geometric means by group: hakmem's speed over each peer's"
BEST = "Each workload against the best of all peers, losses first"
EVERY = "Every comparison, losses first"
MEMORY = "Peak memory: hakmem's over each peer's, below one is smaller"
RATIO = "times as fast (95 %)"

CELL = re.compile(r"(`+) ?(?P<workload>.+?) ?\1(?: against (?P<peer>\S+))?")

LATEST, PEAK = "latest", "peak memory, latest"  # columns of where-others-are-faster.md

EN_DASH = "\N{EN DASH}"  # of ranges, in the documents; the page has hyphens

SLOWER = 0.96  # of the best peer, or less

PEERS = {
    "glibc 2.36": "glibc",
    "mimalloc 3.4.3": "mimalloc3",
    "mimalloc 2.3.2": "mimalloc2",
    "jemalloc 5.3.1": "jemalloc",
    "snmalloc 0.7.6": "snmalloc",
    "TCMalloc, per CPU": "tcmalloc-percpu",
    "gperftools 2.10": "gperftools",
    "rpmalloc": "rpmalloc",
}

COLUMNS = {
    "real programs": "programs",
    "blocks to 1 KiB": "small",
    "1-32 KiB": "mid",
    "larger": "large",
    "mimalloc 3": "mimalloc3",
}

WORKLOADS = {
    "random mix 16-1024 B, 256 slots": "random mix, 256 slots",
    "random mix 16-1024 B, 8192 slots": "random mix, 8192 slots",
    "random mix to 8 KiB": "random mix to 8 KiB, 1024 slots",
    "LIFO bursts of 4000, 64 B": "LIFO burst, 4000 of 64 B",
    "one hot size, 64 B": "tiny and hot, 64 B",
    "larson, 1 thread": "larson, 1 thread, 8-128 B",
    "larson, 2 threads": "larson, 2 threads, 8-128 B",
    "larson, 8 threads": "larson, 8 threads, 8-128 B",
    "larson, 32 threads, to 128 B": "larson, 32 threads, 8-128 B",
    "16 threads that exchange 16 B-4 KiB": "exchange, 16 threads, 16 B-4 KiB",
    "short-lived threads": "short-lived threads, 100 blocks each",
    "change of phase": "change of phase, 8192 slots",
    "64 KiB-1 MiB, 32 slots, little touched": "64 KiB-1 MiB, 32 slots, hardly touched",
    "2 threads, 768-1024 KiB, little touched": "2 threads, 768-1024 KiB",
    "larson, 2 threads, 64 KiB-1 MiB, little touched": "larson, 2 threads, 64 KiB-1 MiB",
    "Python on malloc": "python-malloc",
    "first blocks of each class in a new process": "cold start, 64 of each class",
    "start of `true`": "start of `true`",
}

NAMES = {workload: name for name, workload in WORKLOADS.items()}

Row = dict[str, str]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def lines_of(page: str, section: str) -> list[Row]:
    """The rows of a section's table, each by the names of its columns."""
    found = re.search(rf"^## {re.escape(section)}\n+((?:\|.*\n)+)", page, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{PAGE}: there is no table {section!r}")
    header, _, *lines = found[1].splitlines()
    return [dict(zip(cells(header), cells(line), strict=True)) for line in lines]


def rows(page: str, section: str) -> dict[str, Row]:
    """The same by their first cell."""
    return {next(iter(row.values())): row for row in lines_of(page, section)}


def interval(text: str) -> str:
    """As the documents write it."""
    return text.replace(" to ", EN_DASH)


def ratio(text: str) -> str:
    """Without the sign that says nothing is decided."""
    return text.removesuffix(" ?")


def workload_of(name: str) -> str:
    plain = name.replace(EN_DASH, "-")
    return WORKLOADS.get(plain, plain)


def name_of(workload: str) -> str:
    return re.sub(r"(?<=[0-9B])-(?=[0-9])", EN_DASH, NAMES.get(workload, workload))


def filled(table: str, of_row: Callable[[str], Row], show: Callable[[str], str]) -> str:
    """The same rows and columns, with the figures of the page."""
    header, rule, *lines = table.splitlines()
    columns = [COLUMNS.get(name.replace(EN_DASH, "-"), name) for name in cells(header)[1:]]
    result = [header, rule]
    for line in lines:
        name = cells(line)[0]
        row = of_row(name)
        result.append(f"| {name} | {' | '.join(show(row[column]) for column in columns)} |")
    return "\n".join(result) + "\n"


def slower(table: str, best: dict[str, Row]) -> str:
    header, rule, *_ = table.splitlines()
    result = [header, rule]
    for workload, row in best.items():
        figure = row[RATIO]
        if float(figure.split()[0]) <= SLOWER:
            lost = ", lost" if row["outcome"] == "lost" else ""
            result.append(f"| {name_of(workload)} | {interval(figure)}{lost} | {row['best peer']} |")
    return "\n".join(result) + "\n"


def replaced(path: Path, text: str, first_line: str, write: Callable[[str], str]) -> str:
    found = re.search(rf"^{re.escape(first_line)}.*\n(?:\|.*\n)+", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{path}: there is no table {first_line!r}")
    return text[: found.start()] + write(found[0]) + text[found.end() :]


def largest(memory: Row) -> str:
    """Of how many times a peer's memory: of the peer that has least."""
    ratios = {peer: cell.split()[0] for peer, cell in memory.items() if re.match(r"[0-9]", cell)}
    peer = max(ratios, key=lambda peer: float(ratios[peer]))
    return f"{ratios[peer]} of {peer}"


def latest(page: str) -> Callable[[str, str], str]:
    """What the column of a name, latest or peak memory, says of a cell."""
    best, memory = rows(page, BEST), rows(page, MEMORY)
    every = {(row["workload"], row["against"]): row[RATIO] for row in lines_of(page, EVERY)}

    def figure(column: str, name: str) -> str:
        found = CELL.fullmatch(name)
        if found is None:
            raise SystemExit(f"{BEHIND}: {name!r} is not the name of a cell")
        workload, peer = found["workload"], found["peer"]
        try:
            if column == PEAK:
                return largest({name: cell for name, cell in memory[workload].items() if name != "workload"})
            if peer is not None:
                return f"{every[workload, peer]} of {peer}"
            row = best[workload]
            return f"{row[RATIO]} of {row['best peer']}, {row['outcome']}"
        except KeyError:
            raise SystemExit(f"{BEHIND}: {PAGE} has no {name!r}") from None

    return figure


def with_latest(text: str, figure: Callable[[str, str], str]) -> str:
    def write(table: re.Match[str]) -> str:
        header, rule, *lines = table[0].splitlines()
        column = cells(header)[1]
        result = [header, rule]
        for line in lines:
            name, _, *rest = cells(line)
            result.append(f"| {' | '.join([name, figure(column, name), *rest])} |")
        return "\n".join(result) + "\n"

    return re.sub(rf"^\| cell \| (?:{LATEST}|{PEAK}) \|.*\n(?:\|.*\n)+", write, text, flags=re.MULTILINE)


def written(path: Path) -> str:
    """The document with the figures of the page."""
    page, text = PAGE.read_text(), path.read_text()
    if path == BEHIND:
        return with_latest(text, latest(page))
    if path == README:
        groups = rows(page, GROUPS)
        return replaced(
            path,
            text,
            "| peer | real programs |",
            lambda table: filled(table, lambda name: groups[PEERS[name]], interval),
        )
    speed, best = rows(page, SPEED), rows(page, BEST)
    text = replaced(
        path,
        text,
        "| times as fast as |",
        lambda table: filled(table, lambda name: speed[workload_of(name)], ratio),
    )
    return replaced(path, text, "| workload | times as fast |", lambda table: slower(table, best))


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = [path for path in (README, PERFORMANCE, BEHIND) if written(path) != path.read_text()]
    if arguments:
        for path in stale:
            print(f"{path}: its figures are not those of {PAGE}: run tools/matrix_tables.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(written(path))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
