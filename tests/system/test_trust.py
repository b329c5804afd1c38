"""docs/trust.md is made of what is written down and recorded; every claim's command, every test and every fix that it names is
there. ./hakmem trust runs the claims."""

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import evidence
import pytest
from evidence import Bug, Claim, Kind
from page import page_text
from toolbox import COMMAND, ROOT, Build, ctest_names, run, run_well, system_tests

CLAIMS = {claim.name: claim for claim in evidence.read_claims()}
KINDS = evidence.read_planted()
BUGS = evidence.read_bugs()
TRUST = ROOT / "tests/trust"
PRESETS = {entry["name"] for entry in json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]}


# ---- what is written down ---------------------------------------------------------------------------------


def test_the_page_is_what_is_made_of_it() -> None:
    made = page_text(list(CLAIMS.values()), KINDS, BUGS, evidence.read_recorded())
    assert evidence.PAGE.read_text() == made, "stale: run ./hakmem trust"


@cache
def usages(command: str) -> list[set[str]]:
    """For each line of a command's usage, the options that it has."""
    head = run_well(COMMAND, "help", command).split("\n\n")[0]
    return [set(re.findall(r"--[a-z-]+", line)) for line in head.splitlines()]


def parts(claim: Claim) -> list[list[str]]:
    """The simple commands of a claim's, without the variables before them."""
    words = [shlex.split(part) for part in re.split(r"&&|\|\|", claim.command)]
    return [[word for word in part if not re.fullmatch(r"[A-Z_]+=.*|!", word)] for part in words]


def is_there(words: list[str]) -> bool:
    """Whether ./hakmem knows such a command."""
    command, options = words[1], {word.split("=")[0] for word in words[2:] if word.startswith("--")}
    if run(COMMAND, "help", command).returncode != 0:
        return False
    return any(options <= usage for usage in usages(command))


def names_of(words: list[str]) -> list[str]:
    """What ./hakmem is told by name."""
    return [word for word in words[2:] if re.fullmatch(r"[a-z][a-z0-9_]+", word)]


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_can_be_run(build: Build, name: str) -> None:
    claim = CLAIMS[name]
    assert re.fullmatch(r"[a-z0-9-]+", name)
    assert claim.takes in evidence.TAKES
    assert claim.ci in evidence.IN_CI
    assert re.compile(claim.reads).fullmatch("") is None, "it would take anything"
    assert not claim.report or (ROOT / claim.report).exists()
    assert all((ROOT / path).exists() for path in claim.about)
    commands = [words for words in parts(claim) if words[0] == "./hakmem"]
    if claim.awaits:
        assert not all(is_there(words) for words in commands), "it is there now: take awaits away"
        return
    for words in parts(claim):
        check_command(build, words)


def check_command(build: Build, words: list[str]) -> None:
    """Its subcommand is known, and so is what it names."""
    for word in words:
        if re.match(r"build/|tests/", word):
            assert (build.directory / word.removeprefix("build/")).exists() or (ROOT / word).exists(), word
    if words[0] == "./hakmem":
        assert is_there(words), words
        check_names(words, build)
    elif words[0] == "ctest":
        assert words[words.index("--preset") + 1] in PRESETS
        if "-R" in words:
            pattern = words[words.index("-R") + 1]
            assert any(re.search(pattern, test) for test in ctest_names(build.directory)), pattern
    elif "pytest" in words:
        file, chosen = next(word for word in words if word.endswith(".py")), words[words.index("-k") + 1]
        for part in chosen.split(" or "):
            assert any(part in test for test in system_tests(ROOT / file)), part


def check_names(words: list[str], build: Build) -> None:
    names = names_of(words)
    if words[1] in ("build", "soak"):
        assert set(names) <= PRESETS
    elif words[1] == "explore" and "--defects" not in words:
        listed = run_well(
            sys.executable, "-B", ROOT / "tests/explore/explore.py", "--list", env=build.environment()
        )
        for name in names:
            assert any(test.startswith(name) for test in [*listed.split(), "spin_exit", "spin_found"]), name
    elif words[1] in ("defects", "explore") and "$(" not in " ".join(words):
        folder = "tests/defects" if words[1] == "defects" else "tests/explore/defects"
        for name in names:
            assert (ROOT / folder / f"{name}.toml").exists(), name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.by}: {kind.kind}")
def test_a_planted_bug_is_there(kind: Kind) -> None:
    assert kind.defects
    for name in kind.defects:
        assert evidence.defect_file(name) is not None, name


def test_every_tool_has_planted_bugs() -> None:
    assert {kind.by for kind in KINDS} >= {"explorer", "fuzzers", "sweep"}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what[:40])
def test_what_keeps_a_bug_away_is_there(bug: Bug) -> None:
    assert bug.kept
    for kept in bug.kept:
        file, _, test = kept.partition("::")
        assert (ROOT / file).exists(), file
        if test:
            assert re.search(rf"\b{test}\b", (ROOT / file).read_text()), kept


# ---- history: a shallow clone has none ----------------------------------------------------------------


@pytest.fixture
def history() -> None:
    if evidence.git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("a shallow clone has no history")


@pytest.mark.usefixtures("history")
def test_every_fix_is_in_the_history() -> None:
    assert [bug.fix for bug in BUGS if not evidence.is_in_history(bug.fix)] == []


@pytest.mark.usefixtures("history")
def test_recorded_distances_are_those_of_the_history() -> None:
    recorded = evidence.read_recorded()
    for name, result in recorded.results.items():
        about = CLAIMS[name].about
        assert result.behind == evidence.changes_since(result.commit, about, recorded.counted_at), name


# ---- the command, on a checkout of its own ---------------------------------------------------------------

TINY_CLAIM = """
[[claim]]
name = "{name}"
says = "It is so."
command = "{command}"
reads = '\\d+ caught, 0 missed'
takes = "{takes}"
ci = "no"
"""
HOLDS = "echo 'caught  wrong: at once'; echo '1 caught, 0 missed'"
TINY_CLAIMS = {
    "good": (HOLDS, "seconds"),
    "bad": ("echo '0 caught, 1 missed'; exit 1", "minutes"),
    "liar": (HOLDS + "; exit 1", "minutes"),
    "quiet": ("echo nothing to say", "minutes"),
    "skip": ("echo '1/2 Test #1: one ...***Skipped'; " + HOLDS, "minutes"),
    "never": (HOLDS, "hours"),
}
TINY_PLANTED = '[[kind]]\nby = "tests"\nkind = "a wrong one"\ndefects = ["wrong"]\n'
TINY_DEFECT = 'test = "unit/wrong_test"\nwhy = "It is wrong."\n'
TINY_BUGS = '[[bug]]\nwhat = "It was wrong."\nby = "tests"\nfix = "0123456"\nkept = ["tests/wrong.c"]\n'


class Tiny:
    """A checkout with six claims and the command."""

    def __init__(self, where: Path) -> None:
        self.where = where
        files = {f"tests/trust/{path.name}": path.read_text() for path in TRUST.glob("*.py")}
        files |= {"tests/trust/planted.toml": TINY_PLANTED, "tests/trust/bugs.toml": TINY_BUGS}
        files |= {"tests/defects/wrong.toml": TINY_DEFECT, "src/tiny.c": "1", "include/tiny.h": "1"}
        for name, text in files.items():
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            (where / name).write_text(text)
        (where / "docs/results").mkdir(parents=True)
        self.claim(**TINY_CLAIMS)
        self.git("init", "--quiet")
        self.commit()

    def git(self, *arguments: str) -> None:
        run_well("git", "-C", self.where, "-c", "user.name=t", "-c", "user.email=t@t", *arguments)

    def commit(self) -> None:
        self.git("add", "src", "include")
        self.git("commit", "--quiet", "--message", "A change")

    def claim(self, **claims: tuple[str, str]) -> None:
        texts = [TINY_CLAIM.format(name=name, command=c, takes=takes) for name, (c, takes) in claims.items()]
        (self.where / "tests/trust/claims.toml").write_text("".join(texts))

    def trust(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run(sys.executable, "-B", self.where / "tests/trust/trust.py", *arguments)

    def row(self, name: str) -> str:
        """Of the page."""
        lines = (self.where / "docs/trust.md").read_text().splitlines()
        return next(line for line in lines if f"`{name}`" in line)


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    return Tiny(tmp_path)


def test_what_failed_is_shown_and_what_was_not_run(tiny: Tiny) -> None:
    result = tiny.trust("--run", "good", "bad", "--run", "liar", "quiet", "skip")
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1].startswith("6 claims: 1 held, 4 failed, 1 not run yet"), result
    assert "| `1 caught, 0 missed` |" in tiny.row("good")
    assert "| **failed**: `0 caught, 1 missed` |" in tiny.row("bad")
    assert "| **failed**: `1 caught, 0 missed` |" in tiny.row("liar")
    assert "| **failed**: `nothing to say` |" in tiny.row("quiet")
    assert "| **failed**: `1/2 Test #1: one ...***Skipped` |" in tiny.row("skip")
    assert "| not run yet |" in tiny.row("never")


def test_without_names_nothing_is_run(tiny: Tiny) -> None:
    result = tiny.trust()
    assert (result.returncode, result.stdout.split(";")[0]) == (
        0,
        "6 claims: 0 held, 0 failed, 6 not run yet",
    )
    assert "not run yet" in tiny.row("good")


def test_quick_is_what_takes_seconds(tiny: Tiny) -> None:
    assert (
        tiny.trust("--quick").stdout.splitlines()[-1].startswith("6 claims: 1 held, 0 failed, 5 not run yet")
    )


def test_a_result_of_older_sources_says_so(tiny: Tiny) -> None:
    tiny.trust("--quick")
    assert "ago" not in tiny.row("good")
    (tiny.where / "src/tiny.c").write_text("2")
    tiny.commit()
    said = tiny.trust().stdout
    assert "**1 commit ago**" in tiny.row("good")
    assert said.splitlines()[-1].endswith("; 1 of the results are of other sources than these")


def test_changes_that_are_not_committed_are_said(tiny: Tiny) -> None:
    (tiny.where / "src/tiny.c").write_text("2")
    tiny.trust("--quick")
    assert "and changes not committed" in tiny.row("good")


def test_another_command_has_no_result(tiny: Tiny) -> None:
    tiny.trust("--quick")
    tiny.claim(good=("echo '2 caught, 0 missed'", "seconds"))
    tiny.trust()
    assert "not run yet" in tiny.row("good")


def test_planted_bugs_have_the_outcome_of_the_run(tiny: Tiny) -> None:
    tiny.trust()
    assert tiny.row("unit/wrong_test").endswith("| not run yet |")
    tiny.trust("--quick")
    assert "| caught, " in tiny.row("unit/wrong_test")
    tiny.claim(
        good=("echo 'MISSED  wrong: passed all the same'; echo '0 caught, 1 missed'; exit 1", "seconds")
    )
    tiny.trust("--quick")
    assert "| **missed**, " in tiny.row("unit/wrong_test")


def test_an_unknown_claim_is_named(tiny: Tiny) -> None:
    result = tiny.trust("--run", "no-such")
    assert (result.returncode, result.stderr) == (2, "hakmem: trust: no such claim: no-such\n")
