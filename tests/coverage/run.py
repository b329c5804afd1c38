"""Which lines and branches of src/ the tests run, and why they do not run the others.

    ./hakmem coverage [--again] [--report FILE]

Runs the tests of the preset `coverage`, whose programs add up how often each line and branch ran, has gcovr read
the counts, and compares what never ran with uncovered.toml. An uncovered line or branch that has no explanation
there is a failure, and so is an explanation of what runs, or is gone.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from datetime import date
from pathlib import Path

from judge import EXPLANATIONS, Judgement, Line, read_counts, read_explanations

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build-coverage"
SOURCES = "src/"
# What starts programs in ways that only tests/system knows: by the launcher, without libraries, under other kernels.
SYSTEM_TESTS = (
    "test_bad_circumstances",
    "test_refusals",
    "test_cxx_libraries",
    "test_page_size",
    "test_statistics",
)
# The library is several times slower here than what the bounds of tests of time are made for.
TRIES = 3
# How much is given back in a given time, which depends on how much was used in it.
TOO_SLOW_FOR = "compat/clock_steps"
# The counts are files, too: whoever writes them lifts the limit that this test is about.
LIMIT_IS_LIFTED_FOR = "tests/system/test_statistics.py::test_files_that_may_not_grow"


class CountingError(Exception):
    """There are no counts to be judged: why."""


# ---- counts -------------------------------------------------------------------------------------------


def run_tests() -> None:
    for old in BUILD.rglob("*.gcda"):
        old.unlink()
    jobs = str(os.cpu_count() or 2)
    again = ["--repeat", f"until-pass:{TRIES}"]
    unit = subprocess.run(
        ["ctest", "--test-dir", BUILD, "-j", jobs, "--output-on-failure", "-E", TOO_SLOW_FOR, *again]
    )
    names = [ROOT / f"tests/system/{name}.py" for name in SYSTEM_TESTS]
    pytest = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    system = subprocess.run(
        [*pytest, "--deselect", LIMIT_IS_LIFTED_FOR, *names],
        cwd=ROOT,
        env=os.environ | {"HAKMEM_BUILD_DIR": str(BUILD)},
    )
    if unit.returncode != 0 or system.returncode != 0:
        raise CountingError("a test failed: what it did not come to would pass for uncovered")


def gather() -> list[Line]:
    """What the programs counted, of all objects together."""
    with tempfile.TemporaryDirectory(prefix="hakmem-coverage-") as folder:
        target = Path(folder) / "counts.json"
        command = [sys.executable, "-B", "-m", "gcovr", "--root", ROOT, "--filter", SOURCES, "--merge-lines"]
        # Fast paths run more often than gcovr believes; and what gcov works out of other counts can be below 0 where threads went
        # on while they were written (GCC's bug 68080): that is no run.
        command += ["--gcov-suspicious-hits-threshold", "0"]
        command += ["--gcov-ignore-parse-errors", "negative_hits.warn"]
        command += ["--json", target, BUILD]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if result.returncode != 0:
            raise CountingError(f"gcovr failed:\n{result.stderr}")
        lines = read_counts(json.loads(target.read_text()), ROOT)
    if not any(line.count for line in lines):
        raise CountingError("nothing was counted: ./hakmem coverage runs the tests")
    return lines


# ---- the report ---------------------------------------------------------------------------------------


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "none"


def row(name: str, lines: list[Line]) -> str:
    branches = sum(len(line.branches) for line in lines)
    covered = branches - sum(line.missed for line in lines)
    return f"| {name} | {share(sum(line.count > 0 for line in lines), len(lines))} | {share(covered, branches)} |"


def table(lines: list[Line]) -> list[str]:
    files: dict[str, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        path = Path(line.file)
        files[str(path.parent)][path.name].append(line)
    rows = ["| | lines that run | branches taken |", "|---|---|---|", row(f"**`{SOURCES}`**", lines)]
    for folder, of_folder in sorted(files.items()):
        rows.append(row(f"**`{folder}/`**", [line for some in of_folder.values() for line in some]))
        rows += [row(f"`{name}`", some) for name, some in sorted(of_folder.items())]
    return rows


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


def section(title: str, gaps: list[Line]) -> list[str]:
    rows = [f"| `{g.file}:{g.number}` | `{g.function}` | `{escaped(g.text)}` | {g.shortfall} |" for g in gaps]
    return ["", title, "", "| where | function | line | uncovered |", "|---|---|---|---|", *rows]


def report_text(judgement: Judgement) -> str:
    """docs/results/coverage.md."""
    gaps = judgement.gaps
    branches = sum(line.missed for line in gaps if line.count > 0)
    silent = sum(line.count == 0 for line in gaps)
    lines = [
        "# Coverage",
        "",
        f"Generated by `./hakmem coverage --report docs/results/coverage.md` on {date.today()}, {platform.machine()};",
        "do not edit. Counted in code that is not optimised, under the unit, preload, compat, fault and stress tests,",
        "the fuzzers' corpus, and system tests that start programs in ways of their own:",
        f"{', '.join(f'`{name}`' for name in SYSTEM_TESTS)}.",
        "",
        f"**{silent} lines never run, and {branches} branches of others. Without an explanation:",
        f"{len(judgement.unexplained)} lines.**",
        "",
        *table(judgement.lines),
        "",
        "## What is not covered, and why",
    ]
    for explanation in judgement.explanations:
        own = judgement.explained_by(explanation)
        if own:
            lines += section(explanation.why, own)
    if judgement.unexplained:
        lines += section("**No explanation.**", judgement.unexplained)
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./hakmem coverage", description="Counts the lines and branches of src/ that the tests run."
    )
    parser.add_argument("--again", action="store_true", help="judge the counts of the last run")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write what is covered, and why the rest is not"
    )
    given = parser.parse_args()
    try:
        if not given.again:
            run_tests()
        judgement = Judgement(gather(), read_explanations(EXPLANATIONS))
    except CountingError as error:
        print(f"hakmem: {error}", file=sys.stderr)
        return 1
    if given.report is not None:
        given.report.write_text(report_text(judgement))
    for line in judgement.unexplained:
        print(f"not explained: {line.file}:{line.number}: {line.function}: {line.shortfall}: {line.text}")
    for place in judgement.needless:
        print(f"explained, but covered or gone: {place}")
    print(*table(judgement.lines)[2:3], sep="\n")
    print(f"{len(judgement.unexplained)} not explained, {len(judgement.needless)} explained in vain")
    return 0 if judgement.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
