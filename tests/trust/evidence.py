"""What is claimed of hakmem, what was planted and found to show that it is looked for, and what was run: the files that
docs/trust.md is made of."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
RESULTS = ROOT / "docs/results/trust.json"
PAGE = ROOT / "docs/trust.md"
DEFECT_FOLDERS = ("tests/defects", "tests/explore/defects")
TAKES = ("seconds", "minutes", "hours")
IN_CI = ("yes", "in part", "no")


@dataclass(frozen=True)
class Claim:
    """One of claims.toml. It holds where COMMAND ends with status 0 and the last line of its output that READS matches
    is there."""

    name: str
    says: str
    command: str
    reads: str
    takes: str
    ci: str
    report: str = ""
    awaits: str = ""  # why the command is not there yet
    about: list[str] = field(
        default_factory=lambda: ["src", "include"]
    )  # what makes a result old when it changes

    @property
    def is_quick(self) -> bool:
        return self.takes == "seconds" and not self.awaits


@dataclass(frozen=True)
class Kind:
    """A kind of bug, defects of which were planted; one of planted.toml."""

    by: str
    kind: str
    defects: list[str]


@dataclass(frozen=True)
class Bug:
    """A real one; one of bugs.toml."""

    what: str
    by: str
    fix: str
    kept: list[str]  # FILE, FILE::TEST or a defect's file


@dataclass(frozen=True)
class Result:
    """What a claim's command said when it was run last."""

    command: str
    reads: str
    holds: bool
    line: str
    seconds: float
    date: str
    commit: str  # the last that changed what the claim is about
    clean: bool  # and nothing was changed since
    behind: int | None  # commits that changed it since; None: COMMIT is not in this history
    caught: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def is_of(self, claim: Claim) -> bool:
        """Not of a command that the claim had before."""
        return (self.command, self.reads) == (claim.command, claim.reads)


@dataclass
class Recorded:
    """docs/results/trust.json."""

    counted_at: str = ""  # the commit at which Result.behind was counted
    results: dict[str, Result] = field(default_factory=dict)

    def of(self, claim: Claim) -> Result | None:
        result = self.results.get(claim.name)
        return result if result is not None and result.is_of(claim) else None


def read_claims(folder: Path = FOLDER) -> list[Claim]:
    return [Claim(**entry) for entry in tomllib.loads((folder / "claims.toml").read_text())["claim"]]


def read_planted(folder: Path = FOLDER) -> list[Kind]:
    return [Kind(**entry) for entry in tomllib.loads((folder / "planted.toml").read_text())["kind"]]


def read_bugs(folder: Path = FOLDER) -> list[Bug]:
    return [Bug(**entry) for entry in tomllib.loads((folder / "bugs.toml").read_text())["bug"]]


def read_recorded(file: Path = RESULTS) -> Recorded:
    if not file.exists():
        return Recorded()
    read = json.loads(file.read_text())
    return Recorded(read["counted_at"], {name: Result(**entry) for name, entry in read["results"].items()})


def write_recorded(recorded: Recorded, file: Path = RESULTS) -> None:
    file.write_text(json.dumps(asdict(recorded), indent=2, sort_keys=True) + "\n")


def defect_file(name: str) -> Path | None:
    """The planted defect of that name, of the tests or of the explorer."""
    files = [ROOT / folder / f"{name}.toml" for folder in DEFECT_FOLDERS]
    return next((file for file in files if file.exists()), None)


# ---- history ------------------------------------------------------------------------------------------


def git(*arguments: str) -> str | None:
    """What git prints; None where it fails, as of a commit that is not there."""
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else None


def last_change(paths: Iterable[str]) -> str:
    return git("log", "-1", "--format=%H", "--", *paths) or ""


def is_clean(paths: Iterable[str]) -> bool:
    return git("status", "--porcelain", "--", *paths) == ""


def is_in_history(commit: str, until: str = "HEAD") -> bool:
    return git("merge-base", "--is-ancestor", commit, until) is not None


def changes_since(commit: str, paths: Iterable[str], until: str = "HEAD") -> int | None:
    if not commit or not is_in_history(commit, until):
        return None
    counted = git("rev-list", "--count", f"{commit}..{until}", "--", *paths)
    return None if counted is None else int(counted)


def count_anew(recorded: Recorded, claims: list[Claim]) -> Recorded:
    """How far behind each result is, now; results of claims that are gone go, too."""
    results = {
        claim.name: replace(result, behind=changes_since(result.commit, claim.about))
        for claim in claims
        if (result := recorded.of(claim)) is not None
    }
    return Recorded(git("rev-parse", "HEAD") or "", results)


# ---- reading what a command said ------------------------------------------------------------------------


def line_that_matches(said: str, reads: str) -> str | None:
    """The last one."""
    return next((line for line in reversed(said.splitlines()) if re.fullmatch(reads, line)), None)


def verdicts(said: str, word: str) -> list[str]:
    """The defects of which ./hakmem defects or explore --defects said WORD."""
    return re.findall(rf"^{word}  (\w+):", said, re.MULTILINE)
