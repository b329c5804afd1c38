"""The fuzzers over the interpreter: ./hakmem fuzz builds, and then calls this.

Each set of options (program.c) has its share of the time, as many at once as there are processors. libFuzzer goes on from
tests/fuzz/corpus and what it found before, in build-libfuzzer/fuzz; AFL++ likewise in build-afl/fuzz. What fails is run
again by the replay program of the same build, and named with the command that does so.
"""

import os
import re
import shutil
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
CORPUS = FOLDER / "corpus"
OPERATION_BYTES = 4
MOST_BYTES = 1 + 400 * OPERATION_BYTES  # longer programs find no more, and take longer
TRAIL_PROGRAMS = 64
PROGRAM_SECONDS = 60  # so long a program may take, on a busy machine
FOUND_NAME = re.compile(r"[0-9a-f]{40}")  # other programs of the kept corpus have names, and stay
KEPT_BYTES = 401  # what is longer does not come into the kept corpus


def option_sets() -> list[str]:
    """What HAKMEM_CONF may be: the first byte of a program is an index into it."""
    found = re.search(
        r"option_sets\[OPTION_SETS\] = \{(.*?)\};", (FOLDER / "program.c").read_text(), re.DOTALL
    )
    assert found is not None, "program.c has no option_sets"
    return re.findall(r'"([^"]*)"', found[1])


@dataclass
class Outcome:
    """What one set of options came to."""

    programs: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Fuzzer:
    """A build for a fuzzer, and where it keeps what it finds."""

    build: Path

    @property
    def replay(self) -> Path:
        return self.build / "tests/fuzz/replay"

    @property
    def work(self) -> Path:
        return self.build / "fuzz"

    @property
    def crashes(self) -> Path:
        return self.work / "crashes"

    def environment(self, conf: str, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "AFL_"))}
        return kept | {"HAKMEM_CONF": conf} | more

    def keep(self, program: Path, options: int) -> Path:
        """A program that failed, with the options that it failed with."""
        kept = self.crashes / f"{program.name.split(',')[0].replace(':', '-')}-{options}"
        kept.write_bytes(bytes([options]) + program.read_bytes()[1:])
        return kept

    def seeds(self, options: int) -> Path:
        """A folder with those of the kept corpus that are meant for these options; there is one at least."""
        folder = self.work / f"seeds{options}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "first").write_bytes(bytes([options]) + bytes(range(64)))
        for file in CORPUS.iterdir():
            if file.read_bytes()[:1] == bytes([options]):
                shutil.copyfile(file, folder / file.name)
        return folder

    def fails(self, program: Path) -> bool:
        try:
            result = subprocess.run(
                [self.replay, program],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PROGRAM_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return True
        return result.returncode != 0


# ---- libFuzzer ---------------------------------------------------------------------------------------------


class LibFuzzer(Fuzzer):
    def run(self, options: int, conf: str, seconds: float) -> Outcome:
        found, seeds = self.work / f"set{options}", self.seeds(options)
        found.mkdir(exist_ok=True)
        trail, prefix = self.work / f"trail-{options}", self.crashes / f"set{options}-"
        for old in self.crashes.glob(f"set{options}-*"):
            old.unlink()
        command: list[str | Path] = [self.build / "tests/fuzz/libfuzzer", found, seeds]
        command += [f"-max_total_time={max(1, round(seconds))}", f"-max_len={MOST_BYTES}", "-len_control=20"]
        command += [
            f"-timeout={PROGRAM_SECONDS}",
            "-rss_limit_mb=4096",
            "-print_final_stats=1",
            "-verbosity=1",
        ]
        command += [f"-artifact_prefix={prefix}", "-detect_leaks=0", f"-seed={options + 1}"]
        result = subprocess.run(
            command,
            env=self.environment(conf, FUZZ_TRAIL=str(trail)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        counted = re.search(r"stat::number_of_executed_units: (\d+)", result.stderr)
        outcome = Outcome(programs=int(counted[1]) if counted else 0)
        if result.returncode != 0:
            outcome.failures.append(self.explain(options, conf, result.stderr, trail))
        return outcome

    def explain(self, options: int, conf: str, said: str, trail: Path) -> str:
        lines = [
            line for line in said.splitlines() if "FAIL " in line or "ERROR: " in line or "broken: " in line
        ]
        head = f"with the options {conf}: " + (lines[0] if lines else said[-400:])
        for crash in sorted(self.crashes.glob(f"set{options}-*")):
            program = self.keep(crash, options)
            crash.unlink()
            if self.fails(program):
                return f"{head}\n  again: {self.replay} --trace {program}"
            folder = write_trail(trail, program.with_suffix(".trail"), options)
            return f"{head}\n  not by itself; the programs before it too: {self.replay} {folder}"
        return f"{head}\n  the fuzzer left no program"

    def minimise(self) -> None:
        """Replaces the kept corpus by a small one that reaches as much, from all that was found."""
        for options, conf in enumerate(option_sets()):
            sources = [self.work / "merge-in", self.work / "merge-out"]
            for folder in sources:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
            for file in [*CORPUS.iterdir(), *(self.work / f"set{options}").iterdir()]:
                program = file.read_bytes()
                if 0 < len(program) <= KEPT_BYTES and program[0] == options:
                    (sources[0] / file.name).write_bytes(program)
            subprocess.run(
                [
                    self.build / "tests/fuzz/libfuzzer",
                    "-set_cover_merge=1",
                    "-use_counters=0",
                    sources[1],
                    sources[0],
                ],
                env=self.environment(conf),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            for file in CORPUS.iterdir():
                if FOUND_NAME.fullmatch(file.name) and file.read_bytes()[:1] == bytes([options]):
                    file.unlink()
            for file in sources[1].iterdir():
                shutil.copyfile(file, CORPUS / file.name)


def write_trail(trail: Path, folder: Path, options: int) -> Path:
    """The programs of a trail (trail.h) as files, in the order in which they ran."""
    data = trail.read_bytes()
    (count,) = struct.unpack_from("<Q", data)
    place_bytes = (len(data) - 8) // TRAIL_PROGRAMS
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number in range(max(0, count - TRAIL_PROGRAMS), count):
        at = 8 + number % TRAIL_PROGRAMS * place_bytes
        (size,) = struct.unpack_from("<I", data, at)
        program = data[at + 4 : at + 4 + size]
        (folder / f"{number:012}").write_bytes(bytes([options]) + program[1:])
    return folder


# ---- AFL++ -------------------------------------------------------------------------------------------------


class Afl(Fuzzer):
    def run(self, options: int, conf: str, seconds: float) -> Outcome:
        found, seeds = self.work / f"set{options}", self.seeds(options)
        command: list[str | Path] = ["afl-fuzz", "-i", "-" if found.exists() else seeds, "-o", found]
        command += [
            "-V",
            str(max(5, round(seconds))),
            "-g",
            "5",
            "-G",
            str(MOST_BYTES),
            "-t",
            str(PROGRAM_SECONDS * 1000),
        ]
        result = subprocess.run(
            [*command, "--", self.build / "tests/fuzz/afl"],
            env=self.environment(
                conf,
                AFL_NO_UI="1",
                AFL_SKIP_CPUFREQ="1",
                AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES="1",
                AFL_NO_AFFINITY="1",
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        outcome = Outcome()
        statistics = found / "default/fuzzer_stats"
        if result.returncode != 0 or not statistics.exists():
            outcome.failures.append(f"afl-fuzz ended with {result.returncode}: {result.stdout[-600:]}")
            return outcome
        counted = re.search(r"execs_done *: (\d+)", statistics.read_text())
        outcome.programs = int(counted[1]) if counted else 0
        for folder in ("crashes", "hangs"):
            for crash in sorted((found / "default" / folder).glob("id*")):
                program = self.keep(crash, options)
                how = "" if self.fails(program) else " (not by itself: it needs those before it)"
                outcome.failures.append(
                    f"with the options {conf}: {folder}\n  again: {self.replay} --trace {program}{how}"
                )
        return outcome


# ---- the command line --------------------------------------------------------------------------------------


def run_all(fuzzer: LibFuzzer | Afl, seconds: float) -> Outcome:
    sets = option_sets()
    workers = min(os.cpu_count() or 1, len(sets))
    share = seconds * workers / len(sets)
    total = Outcome()
    with ThreadPoolExecutor(workers) as pool:
        runs = [pool.submit(fuzzer.run, options, conf, share) for options, conf in enumerate(sets)]
        for conf, run in zip(sets, runs, strict=True):
            outcome = run.result()
            print(f"{outcome.programs:9} programs with the options {conf}", flush=True)
            for failure in outcome.failures:
                print(f"FAIL fuzz: {failure}", flush=True)
            total.programs += outcome.programs
            total.failures += outcome.failures
    return total


def main(name: str, minutes: str, *options: str) -> int:
    """What ./hakmem fuzz passes on: it has looked at it."""
    fuzzer = {"libfuzzer": LibFuzzer, "afl": Afl}[name](ROOT / f"build-{name}")
    fuzzer.crashes.mkdir(parents=True, exist_ok=True)
    outcome = run_all(fuzzer, float(minutes) * 60)
    if "--minimise" in options and isinstance(fuzzer, LibFuzzer) and not outcome.failures:
        fuzzer.minimise()
    print(f"{outcome.programs} programs, {len(outcome.failures)} failed")
    return 1 if outcome.failures or outcome.programs == 0 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
