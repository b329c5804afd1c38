"""What goes wrong in a way the user can understand: one line each."""

from __future__ import annotations


class LabError(Exception):
    """Its text is one clear line; the command line prints it and exits with this status."""

    exit_status = 2


class RunInterruptedError(LabError):
    exit_status = 130
