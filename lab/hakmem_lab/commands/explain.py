"""`hakmem explain`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import (
    BuildOption,
    JsonOption,
    TargetArgument,
    grids_show,
    output_check,
    process_asked,
    target_pid,
)
from hakmem_lab.commands.decisions import decisions_show, report_path
from hakmem_lab.commands.units import bytes_parse, seconds_parse
from hakmem_lab.errors import LabError, shown
from hakmem_lab.files import earlier_remove, text_write
from hakmem_lab.reports.explain import (
    account_grid,
    advice_lines,
    classes_grid,
    explain_content,
    growth_grid,
    note_lines,
)
from hakmem_lab.sight.account import Account, account_read
from hakmem_lab.sight.advice import advice_find
from hakmem_lab.sight.decisions import look_of_report, looks_of_process
from hakmem_lab.sight.growth import growths_find, readings_take
from hakmem_lab.sight.launch import Launched, Seen, Trigger, UnseenError, launched, look
from hakmem_lab.sight.process import Process
from hakmem_lab.sight.sizes import size_text

AFTER_SECONDS = 5.0

T = TypeVar("T")


def explain(
    target: TargetArgument = None,
    after: Annotated[
        str, typer.Option(help="With CMD: inspect this long after start, such as 10s. Default: 5s.")
    ] = "",
    when_rss: Annotated[
        str,
        typer.Option(help="With CMD: inspect once its largest process has this much resident, such as 500M."),
    ] = "",
    watch: Annotated[
        str, typer.Option(help="Inspect five times in this time, such as 10s, to show what grows.")
    ] = "",
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions",
            help="Show what the adaptive cache engine (ACE) decided, and why; also from a JSON file of statistics.",
        ),
    ] = False,
    freeze: Annotated[
        Path | None,
        typer.Option(
            help="With --decisions: write a profile file that starts a program with what this one settled on.",
            callback=output_check,
        ),
    ] = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """Why is RSS what it is? Explains every resident byte of a process on hakmem, and what would help.

    Give the PID of a running process, or CMD, which is run on hakmem. The largest process of CMD is inspected after
    5 s, or when --after or --when-rss says. If it ends sooner, the last look before that counts, which is never older
    than a fifth of its life. CMD then runs to its end; the table goes to standard error, and the exit status is CMD's
    (128 and more: the signal that ended it). If it ended before any look, there is no result: a file of --json or
    --freeze that an earlier command left is removed. The process is neither stopped nor changed.
    """
    if freeze is not None and not decisions:
        raise LabError("--freeze is for --decisions")
    if decisions:
        if watch:
            raise LabError("--watch is not for --decisions: they are kept")
        raise typer.Exit(_decisions(target or [], after, when_rss, json_file, freeze, build))
    report = report_path(target or [])
    if report is not None and report.is_file():
        raise LabError(f"{report} is a report: only --decisions reads one")
    seconds = seconds_parse(watch, "watch") if watch else 0.0
    pid = target_pid(target)
    if pid is not None:
        _not_for_running(after, when_rss)
        accounts = _accounts(account_read(process_asked(pid)), seconds)
        _show(accounts, seconds, None, "", json_file)
        return
    trigger = _trigger(after, when_rss)
    with launched(Checkout.find(build), target or []) as running:
        seen = _look(running, trigger, account_read, [json_file])
        if seen is not None:
            accounts = _accounts(seen.value, seconds if seen.reached else 0.0)
            watched = accounts[-1].seconds - accounts[0].seconds
            _show(accounts, seconds, seen.seconds + watched, _when(seen, trigger, watched), json_file)
        status = running.wait()
    raise typer.Exit(status)


def _not_for_running(after: str, when_rss: str) -> None:
    if after or when_rss:
        raise LabError("--after and --when-rss are for a command that is started here, not for a PID")


def _decisions(
    target: Sequence[str],
    after: str,
    when_rss: str,
    json_file: Path | None,
    freeze: Path | None,
    build: Path | None,
) -> int:
    """The exit status; for a command, its own."""
    report = report_path(target)
    pid = None if report else target_pid(target)
    if report or pid is not None:
        _not_for_running(after, when_rss)
        looks = [look_of_report(report)] if report else looks_of_process(process_asked(pid or 0))
        decisions_show(looks, "", None, json_file, freeze)
        return 0
    trigger = _trigger(after, when_rss)
    with launched(Checkout.find(build), target) as running:
        seen = _look(running, trigger, looks_of_process, [json_file, freeze])
        if seen is not None:
            decisions_show(seen.value, _when(seen, trigger, 0.0), seen.seconds, json_file, freeze)
        return running.wait()


def _look(
    running: Launched, trigger: Trigger, read: Callable[[Process], T], files: Sequence[Path | None]
) -> Seen[T] | None:
    """None, after a line that says why, and without FILES of results; the exit status is still the command's."""
    try:
        return look(running, trigger, read)
    except UnseenError as error:
        print(f"hakmem: {shown(str(error))}", file=sys.stderr)
    for file in filter(None, files):
        try:
            earlier_remove(file)
        except LabError as error:
            print(f"hakmem: {shown(str(error))}", file=sys.stderr)
    return None


def _accounts(first: Account, seconds: float) -> list[Account]:
    """With the accounts of the next SECONDS."""
    return readings_take(first, lambda: account_read(first.process), seconds) if seconds else [first]


def _trigger(after: str, when_rss: str) -> Trigger:
    if after and when_rss:
        raise LabError("give either --after or --when-rss, not both")
    if when_rss:
        return Trigger(rss=bytes_parse(when_rss, "when-rss"))
    return Trigger(seconds=seconds_parse(after, "after") if after else AFTER_SECONDS)


def _when(seen: Seen[T], trigger: Trigger, watched: float) -> str:
    if watched:
        return f"Seen {seen.seconds + watched:.1f} s after its start, watched for {watched:.1f} s."
    if seen.reached:
        return f"Seen {seen.seconds:.1f} s after its start."
    wanted = f"it had {size_text(trigger.rss)} resident" if trigger.rss else f"{trigger.seconds:g} s"
    return f"It ended before {wanted}: this was the last look, {seen.seconds:.2f} s after its start."


def _show(
    accounts: Sequence[Account], watch: float, started: float | None, when: str, json_file: Path | None
) -> None:
    """WATCH: the requested number of seconds. STARTED: seconds after the start of a command; standard output then
    belongs to the command."""
    account = accounts[-1]
    growths = growths_find(accounts)
    advice = advice_find(account, growths)
    if json_file is not None:
        content = explain_content(account, growths, advice, started)
        text_write(json_file, json.dumps(content, indent=2) + "\n")
    grids_show(
        [account_grid(account), classes_grid(account), growth_grid(growths)],
        [*note_lines(account, when, watch, len(accounts)), *advice_lines(account, advice, watch > 0)],
        to_errors=started is not None,
    )
