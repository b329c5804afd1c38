"""The fuzzers over the interpreter: ./hakmem fuzz builds, and then calls this.

Each set of options (program.c) has its share of the time, as many at once as there are processors. libFuzzer goes on from
tests/fuzz/corpus and what it found before, in build-libfuzzer/fuzz; AFL++ likewise in build-afl/fuzz. What fails is
made as short as can be (shrink.py) by the replay program of the same build, and named with the command that runs it.
"""

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from shrink import OPERATION_BYTES, Shrinker

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
CORPUS = FOLDER / "corpus"
MOST_BYTES = 1 + 400 * OPERATION_BYTES  # longer programs find no more, and take longer
TRAIL_PROGRAMS = 64
PROGRAM_SECONDS = 60  # so long a program may take, on a busy machine
MARKS = re.compile(r"FAIL \w+: |ERROR: AddressSanitizer|runtime error: |^hakmem: ")
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

    def explain(self, options: int, conf: str, candidates: Iterable[list[bytes]]) -> str:
        """Of several lists of programs the first that fails, as short as can be, and how to run it."""
        shrinker = Shrinker(self.replay, options, conf)
        for programs in candidates:
            whole = [program[1 : 1 + program_bytes(program)] for program in programs]
            if not shrinker.fails(whole):
                continue
            shortest = shrinker.shortest(whole)
            name = self.crashes / hashlib.sha1(shortest or b"".join(programs)).hexdigest()[:12]
            if shortest is not None:
                name.write_bytes(shortest)
            else:  # it takes more than one
                name.mkdir(exist_ok=True)
                for number, program in enumerate(whole):
                    (name / f"{number:03}").write_bytes(bytes([options]) + program)
            return f"  again: {self.replay} --trace {name}"
        return "  it did not fail again"

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


def program_bytes(program: bytes) -> int:
    """How much of a program are whole operations; its first byte is none."""
    return max(0, len(program) - 1) // OPERATION_BYTES * OPERATION_BYTES


# ---- libFuzzer ---------------------------------------------------------------------------------------------


class LibFuzzer(Fuzzer):
    def run(self, options: int, conf: str, seconds: float) -> Outcome:
        found, seeds = self.work / f"set{options}", self.seeds(options)
        found.mkdir(exist_ok=True)
        trail, left = self.work / f"trail-{options}", self.work / f"left-{options}"
        left.unlink(missing_ok=True)
        trail.unlink(missing_ok=True)
        command: list[str | Path] = [self.build / "tests/fuzz/libfuzzer", found, seeds]
        command += [f"-max_total_time={max(1, round(seconds))}", f"-max_len={MOST_BYTES}", "-len_control=20"]
        command += [
            f"-timeout={PROGRAM_SECONDS}",
            "-rss_limit_mb=4096",
            "-print_final_stats=1",
            "-verbosity=1",
        ]
        command += [f"-exact_artifact_path={left}", "-detect_leaks=0", f"-seed={options + 1}"]
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
            said = [line for line in result.stderr.splitlines() if MARKS.search(line)] or [
                result.stderr[-400:]
            ]
            candidates = [[left.read_bytes()]] if left.exists() else []
            if trail.exists():
                candidates.append(read_trail(trail))
            how = self.explain(options, conf, candidates)
            outcome.failures.append(f"with the options {conf}: {said[0]}\n{how}")
        return outcome

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


def read_trail(trail: Path) -> list[bytes]:
    """The programs of a trail (trail.h), in the order in which they ran."""
    data = trail.read_bytes()
    (count,) = struct.unpack_from("<Q", data)
    place_bytes = (len(data) - 8) // TRAIL_PROGRAMS
    programs = []
    for number in range(max(0, count - TRAIL_PROGRAMS), count):
        at = 8 + number % TRAIL_PROGRAMS * place_bytes
        (size,) = struct.unpack_from("<I", data, at)
        programs.append(data[at + 4 : at + 4 + size])
    return programs


# ---- AFL++ -------------------------------------------------------------------------------------------------


class Afl(Fuzzer):
    def run(self, options: int, conf: str, seconds: float) -> Outcome:
        found, seeds = self.work / f"set{options}", self.seeds(options)
        command: list[str | Path] = [
            "afl-fuzz",
            "-i",
            "-" if (found / "default").exists() else seeds,
            "-o",
            found,
        ]
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
                how = self.explain(options, conf, [[crash.read_bytes()]])
                outcome.failures.append(f"with the options {conf}: {folder}\n{how}")
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
            if outcome.programs == 0 and not outcome.failures:
                outcome.failures.append(f"with the options {conf}: no program was run")
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
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
