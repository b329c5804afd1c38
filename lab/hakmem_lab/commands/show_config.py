"""`hakmem show-config`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import (
    BuildOption,
    TargetArgument,
    grids_show,
    process_asked,
    target_pid,
)
from hakmem_lab.reports.config import config_content, config_grid, config_lines
from hakmem_lab.sight.config import config_of_command, config_of_process

NOTHING = ("true",)
"""A program that does nothing: the environment alone decides."""


def show_config(
    target: TargetArgument = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    build: BuildOption = None,
) -> None:
    """Did my option take effect? Shows every option, its value, where that comes from, and what was decided at run time.

    Give the PID of a running process, or CMD, which prints its options and ends before its main. Without either, the
    options that this environment sets are shown. Variables that hakmem does not know or understand are named with
    the nearest known one; then the exit status is 1.
    """
    pid = target_pid(target) if target else None
    if pid is not None:
        configs = config_of_process(process_asked(pid))
    else:
        configs = [config_of_command(Checkout.find(build), target or NOTHING)]
    if as_json:
        sys.stdout.write(json.dumps([config_content(config) for config in configs], indent=2) + "\n")
    else:
        for config in configs:
            grids_show([config_grid(config)], config_lines(config))
    if any(config.mistakes for config in configs):
        raise typer.Exit(1)
