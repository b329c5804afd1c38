"""Runs the claims of claims.toml that are asked for, records what they said, and writes docs/trust.md.

    ./hakmem trust [--list] [--quick] [--run NAME...]

What a claim's command prints goes to build/trust/NAME.log. A result is recorded as soon as it is there: what is interrupted
loses only itself.
"""

import argparse
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import NoReturn

from evidence import (
    PAGE,
    ROOT,
    Claim,
    Result,
    count_anew,
    is_clean,
    last_change,
    line_that_matches,
    read_bugs,
    read_claims,
    read_planted,
    read_recorded,
    verdicts,
    write_recorded,
)
from page import count_line, page_text

LOGS = ROOT / "build/trust"
SHOWN_CHARACTERS = 200
SKIPPED = r".*\*\*\*Skipped.*"  # says CTest of a test that could not be run: it shows nothing


def run_claim(claim: Claim) -> Result:
    began, now = time.monotonic(), datetime.now(UTC)
    commit, clean = (
        last_change(claim.about),
        is_clean(claim.about),
    )  # before it: what changes meanwhile is newer
    log = LOGS / f"{claim.name}.log"
    with log.open("w") as output:
        ended = subprocess.run(
            ["sh", "-c", claim.command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    said = log.read_text(errors="replace")
    skipped, line = line_that_matches(said, SKIPPED), line_that_matches(said, claim.reads)
    last = skipped or line or next(iter(reversed(said.splitlines())), "")
    return Result(
        command=claim.command,
        reads=claim.reads,
        holds=ended.returncode == 0 and line is not None and skipped is None,
        line=last[:SHOWN_CHARACTERS],
        seconds=round(time.monotonic() - began, 1),
        date=now.strftime("%Y-%m-%d %H:%M UTC"),
        commit=commit,
        clean=clean,
        behind=0,
        caught=verdicts(said, "caught"),
        missed=verdicts(said, "MISSED"),
    )


def run_all(claims: list[Claim]) -> bool:
    LOGS.mkdir(parents=True, exist_ok=True)
    good = True
    for claim in claims:
        print(f"hakmem: {claim.name}: {claim.command}", file=sys.stderr, flush=True)
        result = run_claim(claim)
        recorded = read_recorded()  # now: another run may have written meanwhile
        recorded.results[claim.name] = result
        write_recorded(recorded)
        word = "held" if result.holds else "FAILED"
        print(f"{word}  {claim.name}: {result.line} ({result.seconds:.0f} s)", flush=True)
        good = good and result.holds
    return good


def refuse(line: str) -> NoReturn:
    print(f"hakmem: {line}", file=sys.stderr)
    raise SystemExit(2)


def chosen(claims: list[Claim], names: list[str], quick: bool) -> list[Claim]:
    unknown = set(names) - {claim.name for claim in claims}
    if unknown:
        refuse(f"trust: no such claim: {', '.join(sorted(unknown))}")
    waiting = [claim for claim in claims if claim.name in names and claim.awaits]
    if waiting:
        refuse(f"trust: {waiting[0].name} cannot be run yet: {waiting[0].awaits}")
    return [claim for claim in claims if claim.name in names or (quick and claim.is_quick)]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./hakmem trust", description="Runs claims, and writes docs/trust.md."
    )
    parser.add_argument(
        "--run", nargs="+", action="extend", default=[], metavar="NAME", help="run these claims"
    )
    parser.add_argument("--quick", action="store_true", help="run all that take seconds")
    parser.add_argument("--list", action="store_true", help="only name the claims")
    given = parser.parse_args()
    claims = read_claims()
    if given.list:
        for claim in claims:
            print(f"{claim.name}: {claim.says} ({claim.takes})")
        return 0
    good = run_all(chosen(claims, given.run, given.quick))
    claims = read_claims()  # anew, as everything else: a run of hours must not take away what came meanwhile
    recorded = count_anew(read_recorded(), claims)
    write_recorded(recorded)
    PAGE.write_text(page_text(claims, read_planted(), read_bugs(), recorded))
    print(count_line(claims, recorded))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
