"""The planted defects: each breaks hakmem in one place, and the test that it names must fail.

    ./hakmem defects [--list] [--report FILE] [NAME...]

The checkout is copied to a scratch directory and built there, for each of some jobs. Each named test must pass as things are; then one
defect after the other is planted, built and tested, and taken out again. A crash and a timeout are failures too:
that is how most of these defects show. What does not build is an error of the defect's own, and counts as missed.
"""

import argparse
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
SYSTEM = "system: "
BUILD_SECONDS = 1800
TEST_SECONDS = 600
# A test that hangs on a defect need not hang for long.
PATIENCE_FACTOR, PATIENCE_SECONDS = 3.0, 20.0
SHOWN_LINES = 30
JOBS_MOST = 4
FAILED = re.compile(r"FAIL ([\w/.-]+)")
"""What the tests and the specification print: not the line of a traceback that would have printed it."""


@dataclass(frozen=True)
class Defect:
    """One file of this folder."""

    name: str
    item: int
    test: str
    file: str
    find: str
    replace: str
    why: str
    preset: str = "release"

    @property
    def system_test(self) -> str | None:
        """The pytest function, if the test is a system test."""
        return self.test.removeprefix(SYSTEM) if self.test.startswith(SYSTEM) else None


@dataclass(frozen=True)
class Verdict:
    defect: Defect
    caught: bool
    how: str
    seconds: float


class PlantingError(Exception):
    """Nothing can be said of a defect: why."""


def read_defects(folder: Path = FOLDER) -> list[Defect]:
    """All defects, by item and name."""
    found = [Defect(name=path.stem, **tomllib.loads(path.read_text())) for path in folder.glob("*.toml")]
    return sorted(found, key=lambda defect: (defect.item == 0, defect.item, defect.name))


def chosen(defects: list[Defect], names: list[str]) -> list[Defect]:
    unknown = set(names) - {defect.name for defect in defects}
    if unknown:
        raise SystemExit(f"hakmem: no such defect: {', '.join(sorted(unknown))}")
    return [defect for defect in defects if not names or defect.name in names]


def finish(
    command: Iterable[str | Path], where: Path, seconds: float, **variables: str
) -> subprocess.CompletedProcess[str] | None:
    """Runs a command to its end, and ends what it left running; None when it took longer than SECONDS."""
    with subprocess.Popen(
        [str(word) for word in command],
        cwd=where,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    ) as process:
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Children that a defect made hang outlive the test that forked them; mostly there are none.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess([], process.returncode, said)


class Scratch:
    """A copy of the checkout, with the builds that defects ask for."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.built: set[str] = set()
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            source, target = ROOT / name, where / name
            if not source.is_file() or source.is_symlink():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode)
        for name in (".tools", ".venv"):
            if (ROOT / name).exists():
                (where / name).unlink(missing_ok=True)
                (where / name).symlink_to((ROOT / name).resolve())

    def directory(self, preset: str) -> Path:
        return self.where / ("build" if preset == "release" else f"build-{preset}")

    def build(self, preset: str, targets: list[str]) -> None:
        """Brings a build up to date: all of it the first time."""
        if preset not in self.built:
            command: list[str | Path] = [self.where / "hakmem", "build", preset]
        else:
            command = ["cmake", "--build", self.directory(preset), "--target", *(targets or ["all"])]
        result = finish(command, self.where, BUILD_SECONDS)
        if result is None or result.returncode != 0:
            raise PlantingError("does not build:\n" + tail(result.stdout if result else "took too long"))
        self.built.add(preset)

    def test(self, defect: Defect, seconds: float) -> tuple[bool, str]:
        """Whether the defect's test passes, and what it said."""
        build = self.directory(defect.preset)
        if defect.system_test is not None:
            python = self.where / ".venv/bin/python"
            command = [python, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
            result = finish(
                [*command, "-k", defect.system_test, "tests/system"],
                self.where,
                seconds,
                HAKMEM_BUILD_DIR=str(build),
                HAKMEM_STRICT="1",
            )
        else:
            pattern = f"^{defect.test}$"
            command = ["ctest", "--test-dir", build, "--no-tests=error", "--output-on-failure"]
            result = finish(
                [*command, "--timeout", f"{seconds:.0f}", "-R", pattern], self.where, seconds + 10
            )
        if result is None:
            return False, "timeout"
        skipped = "(Skipped)" in result.stdout
        return result.returncode == 0 and not skipped, result.stdout


def tail(text: str) -> str:
    return "\n".join(text.splitlines()[-SHOWN_LINES:])


def targets_of(defect: Defect) -> list[str]:
    """What must be built for the test; nothing for a system test, which may look at anything."""
    return [] if defect.system_test is not None else [defect.test.replace("/", "_")]


def how_it_failed(said: str) -> str:
    """A few words for the table."""
    if found := FAILED.search(said):
        return found[1]
    for word in ("***Timeout", "timeout"):
        if word in said:
            return "timeout"
    for word in ("SIGSEGV", "SegFault", "SIGABRT", "Subprocess aborted", "SIGBUS", "Bus error"):
        if word in said:
            return word
    return "failed"


def planted_text(text: str, defect: Defect) -> str:
    """The file with the defect in it."""
    if text.count(defect.find) != 1:
        raise PlantingError(f"its text occurs {text.count(defect.find)} times in {defect.file}")
    return text.replace(defect.find, defect.replace)


def try_defect(scratch: Scratch, defect: Defect, sound_seconds: float) -> Verdict:
    file = scratch.where / defect.file
    before = file.read_text()
    began = time.monotonic()
    try:
        file.write_text(planted_text(before, defect))
        scratch.build(defect.preset, targets_of(defect))
        passes, said = scratch.test(defect, sound_seconds * PATIENCE_FACTOR + PATIENCE_SECONDS)
        verdict = Verdict(
            defect,
            not passes,
            "passed all the same" if passes else how_it_failed(said),
            time.monotonic() - began,
        )
    finally:
        file.write_text(before)
    return verdict


def run_defects(defects: list[Defect], scratch: Scratch) -> list[Verdict]:
    sound: dict[tuple[str, str], float] = {}
    verdicts = []
    for defect in defects:
        try:
            key = (defect.preset, defect.test)
            if key not in sound:
                scratch.build(defect.preset, targets_of(defect))
                began = time.monotonic()
                passes, said = scratch.test(defect, TEST_SECONDS)
                if not passes:
                    raise PlantingError(f"{defect.test} does not pass without any defect:\n{tail(said)}")
                sound[key] = time.monotonic() - began
            verdict = try_defect(scratch, defect, sound[key])
        except PlantingError as broken:
            verdict = Verdict(defect, False, str(broken).splitlines()[0], 0)
            print(broken, file=sys.stderr)
        word = "caught" if verdict.caught else "MISSED"
        print(f"{word}  {defect.name}: {defect.test}: {verdict.how} ({verdict.seconds:.0f} s)", flush=True)
        verdicts.append(verdict)
    return verdicts


def shares_of(defects: list[Defect], jobs: int) -> list[list[Defect]]:
    """As many for each job, those of one test together: it is seen to pass once."""
    shares: list[list[Defect]] = [[] for _ in range(jobs)]
    by_test = sorted(defects, key=lambda defect: (defect.preset, defect.test))
    for _, group in itertools.groupby(by_test, key=lambda defect: (defect.preset, defect.test)):
        min(shares, key=len).extend(group)
    return [share for share in shares if share]


def run_side_by_side(defects: list[Defect], jobs: int) -> list[Verdict]:
    """Each job with a copy of its own. In the order of DEFECTS."""

    def run_share(share: list[Defect]) -> list[Verdict]:
        with tempfile.TemporaryDirectory(prefix="hakmem-defects-") as folder:
            return run_defects(share, Scratch(Path(folder)))

    shares = shares_of(defects, jobs)
    with ThreadPoolExecutor(max(1, len(shares))) as pool:
        verdicts = [verdict for found in pool.map(run_share, shares) for verdict in found]
    return sorted(verdicts, key=lambda verdict: defects.index(verdict.defect))


def summary(verdicts: list[Verdict]) -> str:
    caught = sum(verdict.caught for verdict in verdicts)
    return f"{caught} caught, {len(verdicts) - caught} missed"


def report_text(verdicts: list[Verdict]) -> str:
    """docs/results/defects.md."""
    lines = [
        "# Planted defects",
        "",
        f"Generated by `./hakmem defects --report docs/results/defects.md` on {date.today()}; do not edit. Each row is a",
        "defect of `tests/defects/`, planted alone into a copy of the checkout; the test must fail with it, and did pass",
        "without. *Item* is that of `docs/compat.md`.",
        "",
        f"**{summary(verdicts)}.**",
        "",
        "| item | defect | what it breaks | test | build | outcome |",
        "|---|---|---|---|---|---|",
    ]
    for verdict in verdicts:
        defect = verdict.defect
        outcome = f"caught: {verdict.how}" if verdict.caught else f"**missed**: {verdict.how}"
        item = str(defect.item or "-")
        lines.append(
            f"| {item} | `{defect.name}` | {defect.why} | `{defect.test}` | {defect.preset} | {outcome} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./hakmem defects",
        description="Plants each defect of tests/defects into a copy of the checkout and sees whether its test fails.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="defects to plant; all if none is named")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the table to FILE")
    given = parser.parse_args()
    defects = chosen(read_defects(), given.names)
    if given.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever reads it may have seen enough
        for defect in defects:
            print(f"{defect.name}: {defect.why} ({defect.test})")
        return 0
    verdicts = run_side_by_side(defects, min(JOBS_MOST, os.cpu_count() or 1))
    if given.report is not None:
        given.report.write_text(report_text(verdicts))
    print(summary(verdicts))
    return 0 if all(verdict.caught for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
