"""Explores the atomic protocols: every execution that C11 allows, of a few operations of two or three threads.

    ./hakmem explore [--deep] [--list] [TEST...]
    ./hakmem explore --defects [--report FILE] [NAME...]

The first runs the litmus tests of the explorer, the protocols, and the Promela model of exit and adoption. The second plants
each defect of tests/explore/defects into one source, or into the model, builds what holds it anew beside the build directory,
and sees the named test fail.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from datetime import date
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", ROOT / "build"))
LIBRARIES = ("litmus", "random", "lock", "protocols", "purger")
NONE_CHOSEN = "no test has a name that begins like that"
SPIN = FOLDER / "spin/exit.pml"
SPIN_SAFE, SPIN_FOUND = "spin_exit", "spin_found"
SPIN_RUNS = {SPIN_SAFE: ("-DSAFETY -DNOCLAIM", "-m100000"), SPIN_FOUND: ("-DNFAIR=3", "-m100000 -a -f")}
"""For each test how the verifier is compiled and called. That every block is found takes minutes: it is deep."""
TEST_SECONDS, DEEP_SECONDS = 600, 6 * 3600
OK = re.compile(
    r"ok (\w+): (\d+) executions, (\d+) cut short, at most (\d+) steps, (\d+) shared locations, ([\d.]+) s"
)


@dataclass(frozen=True)
class Outcome:
    """One test's."""

    name: str
    passed: bool
    said: str
    executions: int = 0
    cut: int = 0
    steps: int = 0
    seconds: float = 0


@dataclass(frozen=True)
class Defect:
    """One file of defects/."""

    name: str
    test: str
    file: str
    find: str
    replace: str
    why: str


@dataclass(frozen=True)
class Verdict:
    defect: Defect
    caught: bool
    how: str


def explore(library: Path, names: list[str], deep: bool) -> list[Outcome]:
    """Runs the tests of a library whose names begin like one of NAMES; all if there is none."""
    command = [BUILD / "tests/explore/explore", library, *(["--deep"] if deep else []), *names]
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEEP_SECONDS if deep else TEST_SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        text = (late.stdout or b"").decode(errors="replace")
        return read_outcomes(f"{text}FAIL {library.stem}: took too long\n")
    outcomes = read_outcomes(result.stdout)
    none_chosen = bool(names) and NONE_CHOSEN in result.stderr
    if result.returncode != 0 and all(outcome.passed for outcome in outcomes) and not none_chosen:
        said = f"FAIL {library.stem}: ended with {result.returncode}: {result.stderr}"
        outcomes.append(Outcome(library.stem, False, said))
    return outcomes


def read_outcomes(text: str) -> list[Outcome]:
    outcomes = []
    for part in re.split(r"^(?=ok |FAIL )", text, flags=re.MULTILINE):
        if ok := OK.match(part):
            name, executions, cut, steps, _, seconds = ok.groups()
            outcomes.append(Outcome(name, True, part, int(executions), int(cut), int(steps), float(seconds)))
        elif part.startswith("FAIL "):
            outcomes.append(Outcome(re.split(r"[,:]", part[5:])[0], False, part))
    return outcomes


# ---- the Promela model --------------------------------------------------------------------------------


def spin(model: Path, name: str) -> Outcome:
    """Verifies the model: every assertion and no deadlock, or that every block is found in the end."""
    began = time.monotonic()
    compiled, run = SPIN_RUNS[name]
    with tempfile.TemporaryDirectory(prefix="hakmem-spin-") as folder:
        where = Path(folder)
        shutil.copy(model, where / "exit.pml")
        subprocess.run(["spin", "-a", "exit.pml"], cwd=where, check=True, capture_output=True)
        subprocess.run(["cc", "-O2", "-w", *compiled.split(), "-o", "pan", "pan.c"], cwd=where, check=True)
        result = subprocess.run(
            ["./pan", *run.split()], cwd=where, capture_output=True, text=True, timeout=TEST_SECONDS
        )
        text = result.stdout
        states = sum(int(float(found)) for found in re.findall(r"([\d.e+]+) states, stored", text))
        passed = re.findall(r"errors: (\d+)", text) == ["0"]
        if not passed:
            trail = subprocess.run(
                ["spin", "-t", "-p", "-g", "exit.pml"], cwd=where, capture_output=True, text=True
            )
            text = f"FAIL {name}: {first_error(text)}\n{trail.stdout}"
    return Outcome(name, passed, text, executions=states, seconds=time.monotonic() - began)


def first_error(text: str) -> str:
    found = re.search(r"^pan:\d+: (.*)$", text, re.MULTILINE)
    return found[1] if found else "an error without a name"


# ---- planting -----------------------------------------------------------------------------------------


def read_defects(names: list[str]) -> list[Defect]:
    found = [
        Defect(name=path.stem, **tomllib.loads(path.read_text()))
        for path in sorted((FOLDER / "defects").glob("*.toml"))
    ]
    unknown = set(names) - {defect.name for defect in found}
    if unknown:
        raise SystemExit(f"hakmem: no such defect: {', '.join(sorted(unknown))}")
    return [defect for defect in found if not names or defect.name in names]


def library_of(test: str) -> str:
    return next((name for name in LIBRARIES if test.startswith(name)), "protocols")


@dataclass(frozen=True)
class Unit:
    """A source as the build compiles it."""

    source: Path
    output: Path
    command: list[str]
    directory: Path


def unit_of(entry: dict[str, str]) -> Unit:
    command = shlex.split(entry["command"])
    directory = Path(entry["directory"])
    return Unit(Path(entry["file"]), directory / command[command.index("-o") + 1], command, directory)


class Planter:
    """Builds a library of tests with one source changed, by the commands of the build itself."""

    def __init__(self) -> None:
        entries = json.loads((BUILD / "compile_commands.json").read_text())
        units = [unit_of(entry) for entry in entries]
        self.units = [unit for unit in units if "explore" in unit.output.parts]

    def units_of(self, library: str) -> list[Unit]:
        objects = {f"explored_{library}_tests.dir"}
        if library in ("protocols", "purger"):
            unseen = "_unseen" if library == "protocols" else ""
            objects |= {"explored_library.dir", "explored_unseen.dir", f"explored_footprint{unseen}.dir"}
        return [unit for unit in self.units if objects & set(unit.output.parts)]

    def build(self, defect: Defect, where: Path) -> Path:
        """The library that holds the defect."""
        units = self.units_of(library_of(defect.test))
        source = ROOT / defect.file
        header = source.suffix == ".h"
        overlay = where / "overlay" / Path(defect.file).relative_to("src")
        overlay.parent.mkdir(parents=True, exist_ok=True)
        objects = []
        for number, unit in enumerate(units):
            # The build explores a copy of lock.c with fewer spins.
            changed = unit.source == source or unit.source.name == source.name == "lock.c"
            changed = changed and "protocols" not in unit.source.parts
            if changed or (header and number == 0):
                overlay.write_text(planted_text((unit.source if changed else source).read_text(), defect))
            objects.append(
                self.compile(unit, overlay, where, number, header) if changed or header else unit.output
            )
        target = where / f"{library_of(defect.test)}.so"
        subprocess.run([*("cc", "-shared", "-o"), target, *objects], check=True)
        return target

    def compile(self, unit: Unit, overlay: Path, where: Path, number: int, header: bool) -> Path:
        output = where / f"{number}.o"
        command = [word if word != str(unit.source) or header else str(overlay) for word in unit.command]
        command = [word for word in command if word != "-Werror"]  # a defect may leave something unused
        command[command.index("-o") + 1] = str(output)
        folder = f"-I{where / 'overlay'}" if header else f"-I{unit.source.parent}"
        command.insert(1, folder)
        subprocess.run(command, cwd=unit.directory, check=True)
        return output


def planted_text(text: str, defect: Defect) -> str:
    if text.count(defect.find) != 1:
        raise SystemExit(
            f"hakmem: {defect.name}: its text occurs {text.count(defect.find)} times in {defect.file}"
        )
    return text.replace(defect.find, defect.replace)


def try_defect(planter: Planter, defect: Defect) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="hakmem-explore-") as folder:
        where = Path(folder)
        if defect.test in SPIN_RUNS:
            model = where / "planted.pml"
            model.write_text(planted_text(SPIN.read_text(), defect))
            outcomes = [spin(model, defect.test)]
        else:
            outcomes = explore(planter.build(defect, where), [defect.test], deep=True)
    failed = [o for o in outcomes if not o.passed and o.name.startswith(defect.test)]
    how = re.sub(r"^FAIL [^:]*: ", "", failed[0].said.splitlines()[0]) if failed else "passed all the same"
    return Verdict(defect, bool(failed), how)


# ---- the command --------------------------------------------------------------------------------------


def run_all(names: list[str], deep: bool) -> list[Outcome]:
    outcomes = []
    for library in LIBRARIES:
        outcomes += explore(BUILD / f"tests/explore/{library}.so", names, deep)
    models = [SPIN_SAFE, *([SPIN_FOUND] if deep else [])] if shutil.which("spin") else []
    outcomes += [spin(SPIN, name) for name in models if not names or name.startswith(tuple(names))]
    for outcome in outcomes:
        numbers = f"{outcome.executions} executions or states, {outcome.seconds:.1f} s"
        print(f"ok {outcome.name}: {numbers}" if outcome.passed else outcome.said, flush=True)
    return outcomes


def plant_all(names: list[str]) -> list[Verdict]:
    planter = Planter()
    verdicts = []
    for defect in read_defects(names):
        verdict = try_defect(planter, defect)
        print(f"{'caught' if verdict.caught else 'MISSED'}  {defect.name}: {verdict.how}", flush=True)
        verdicts.append(verdict)
    return verdicts


def report_text(outcomes: list[Outcome], verdicts: list[Verdict], deep: bool) -> str:
    """docs/results/explored.md."""
    passed = sum(outcome.passed for outcome in outcomes)
    caught = sum(verdict.caught for verdict in verdicts)
    shown = [outcome for outcome in outcomes if not outcome.name.startswith("random_")]
    lines = [
        "# Explored protocols",
        "",
        f"Generated by `./hakmem explore {'--deep ' if deep else ''}--report docs/results/explored.md` on {date.today()}; do not edit.",
        "What the numbers mean, and what is not covered, says `docs/explored.md`.",
        "",
        f"**{passed} passed, {len(outcomes) - passed} failed. {caught} defects caught, {len(verdicts) - caught} missed.**",
        "",
        "| test | executions | cut short | steps at most | seconds | outcome |",
        "|---|---:|---:|---:|---:|---|",
        *(
            f"| `{o.name}` | {o.executions} | {o.cut} | {o.steps} | {o.seconds:.1f} | {'passed' if o.passed else '**failed**'} |"
            for o in shown
        ),
        "",
        f"And {len(outcomes) - len(shown)} random programs, each in three orders.",
        "",
        "| planted defect | what it does | test | outcome |",
        "|---|---|---|---|",
        *(
            f"| `{v.defect.name}` | {v.defect.why} | `{v.defect.test}` | {'caught: ' if v.caught else '**missed**: '}{shortened(v.how)} |"
            for v in verdicts
        ),
    ]
    return "\n".join(lines) + "\n"


def shortened(text: str) -> str:
    """Without addresses, the checkout's place, and what was inlined into what."""
    text = text.replace(f"{ROOT}/", "")
    text = re.sub(r";\s*\(inlined by\)[^,;]*", "", re.sub(r"0x[0-9a-f]+ ?", "", text))
    return text.replace(" (discriminator 1)", "").replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./hakmem explore", description="Runs all executions of the atomic protocols that C11 allows."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginnings of tests' names, or defects")
    parser.add_argument("--deep", action="store_true", help="the long ones, too")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--defects", action="store_true", help="plant defects, and see the tests fail")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="run the tests, plant the defects, and write a table"
    )
    given = parser.parse_args()
    if given.list:
        for library in LIBRARIES:
            subprocess.run(
                [BUILD / "tests/explore/explore", BUILD / f"tests/explore/{library}.so", "--deep", "--list"]
            )
        return 0
    outcomes = [] if given.defects else run_all(given.names, given.deep)
    verdicts = plant_all(given.names) if given.defects or given.report is not None else []
    if given.report is not None:
        given.report.write_text(report_text(outcomes, verdicts, given.deep))
    if outcomes:
        print(f"{sum(o.passed for o in outcomes)} passed, {sum(not o.passed for o in outcomes)} failed")
    if verdicts:
        print(f"{sum(v.caught for v in verdicts)} caught, {sum(not v.caught for v in verdicts)} missed")
    if not outcomes and not verdicts:
        print("hakmem: no test has a name that begins like that", file=sys.stderr)
    good = all(outcome.passed for outcome in outcomes) and all(verdict.caught for verdict in verdicts)
    return 0 if good and (outcomes or verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
