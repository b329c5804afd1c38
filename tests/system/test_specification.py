"""The specification of the interface (tests/spec/rules.h), in the hands of Hypothesis and of the fuzzers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from campaign import LibFuzzer, Outcome, option_sets, run_all
from toolbox import COMMAND, ROOT, Build, environment, run, run_well, tool

SPEC = ROOT / "tests/spec"
MACHINE_SECONDS = 10
FUZZ_MINUTES = 0.1
C_JUDGES = ("spec/model.c", "spec/calls.c", "fuzz/interpreter.c")
RULE = re.compile(r"RULE\((\w+),")


def rules() -> list[str]:
    """Those of rules.h, in order."""
    return [name for name in RULE.findall((SPEC / "rules.h").read_text()) if name != "name"]


def test_every_rule_is_judged_twice() -> None:
    """In C and in Python; by nobody else's names."""
    in_c = "\n".join((ROOT / "tests" / name).read_text() for name in C_JUDGES)
    in_python = "\n".join((SPEC / name).read_text() for name in ("model.py", "state_machine.py"))
    names = rules()
    assert len(names) == len(set(names)) > 15
    for name in names:
        assert re.search(rf"SPEC\({name},|RULE_{name}\b", in_c), name
        assert f'"{name}"' in in_python, name


def test_state_machine(build: Build) -> None:
    """Hypothesis finds no sequence of calls that breaks a rule."""
    faults = build.directory / "tests/faults/libfail_calls.so"
    result = run(
        *[sys.executable, "-B", SPEC / "state_machine.py", build.library, str(MACHINE_SECONDS)],
        env=environment(LD_PRELOAD=str(faults), FAIL_ONLY="hakmem", HAKMEM_CONF="purge_thread:off"),
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    found = re.fullmatch(r"(\d+) sequences of at most \d+ calls\n", result.stdout)
    assert found is not None, result.stdout
    assert int(found[1]) > 0


@pytest.mark.slow
def test_short_fuzz() -> None:
    """What ./hakmem fuzz does by hand for an hour."""
    tool("clang")
    result = run(COMMAND, "fuzz", "--minutes", str(FUZZ_MINUTES), timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    last = re.fullmatch(r"(\d+) programs, 0 failed", result.stdout.splitlines()[-1])
    assert last is not None, result.stdout
    assert int(last[1]) > 100


@pytest.mark.slow
def test_the_program_for_afl_runs() -> None:
    """By itself, as it does without afl-fuzz, on one program of the corpus."""
    tool("afl-clang-fast")
    if not (ROOT / "build-afl/CMakeCache.txt").exists():
        run_well(tool("cmake"), "--preset", "afl", cwd=ROOT)
    run_well(tool("cmake"), "--build", "build-afl", "--target", "fuzz_afl", cwd=ROOT)
    program = next((ROOT / "tests/fuzz/corpus").iterdir())
    with program.open() as bytes_of_it:
        subprocess.run([ROOT / "build-afl/tests/fuzz/afl"], stdin=bytes_of_it, check=True, timeout=60)


# ---- what ./hakmem fuzz does with what fails, shown on a replay program that fails where it reads BAAD -------

FAKE_REPLAY = """#!/bin/sh
shift # --here
if cat "$@" | grep -q BAAD; then exit 1; fi
"""


@pytest.fixture
def fuzzer(tmp_path: Path) -> LibFuzzer:
    fuzzer = LibFuzzer(tmp_path)
    fuzzer.crashes.mkdir(parents=True)
    fuzzer.replay.parent.mkdir(parents=True)
    fuzzer.replay.write_text(FAKE_REPLAY)
    fuzzer.replay.chmod(0o755)
    return fuzzer


def test_what_fails_is_made_short(fuzzer: LibFuzzer) -> None:
    """The last program does not fail by itself; one of those before it does, by one operation."""
    trail = [b"\3good" * 2, b"\3" + b"good" * 20 + b"BAAD" + b"good" * 9 + b"..", b"\3good"]
    said = fuzzer.explain(3, option_sets()[3], [[b"\3good"], trail])
    assert said.startswith(f"  again: {fuzzer.replay} --trace ")
    assert Path(said.split()[-1]).read_bytes() == b"\3BAAD"


class OneSetIdle(LibFuzzer):
    """Which runs nothing with the last set of options."""

    def run(self, options: int, conf: str, seconds: float) -> Outcome:
        assert conf == option_sets()[options]
        return Outcome(programs=round(seconds * 100) if options < len(option_sets()) - 1 else 0)


def test_options_with_which_nothing_ran_failed(tmp_path: Path) -> None:
    outcome = run_all(OneSetIdle(tmp_path), 1)
    assert outcome.failures == [f"with the options {option_sets()[-1]}: no program was run"]


def test_no_corpus_is_no_success(build: Build, tmp_path: Path) -> None:
    replay = build.directory / "tests/fuzz/replay"
    for arguments in ([], [tmp_path], [tmp_path / "none"]):
        assert run(replay, *arguments).returncode == 2


def test_what_does_not_fail_again_is_said(fuzzer: LibFuzzer) -> None:
    assert fuzzer.explain(0, option_sets()[0], [[b"\0good"]]) == "  it did not fail again"
