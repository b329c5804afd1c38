"""Times and shares as people write them: 60s, 2m, 500ms; 3%, 0.03, +5%."""

from __future__ import annotations

import re
from decimal import Decimal

from hakmem_lab.errors import LabError

SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
SECONDS_MAX = 366 * 86400.0
BYTES_MAX = float(1 << 56)
"""More than a process has addresses."""


def seconds_parse(text: str, what: str = "budget") -> float:
    match = re.fullmatch(NUMBER + r"\s*([a-z]*)", text.strip())
    if match is None or match[2] not in SECONDS:
        raise LabError(f"--{what} is a time such as 60s, 2m or 500ms, not '{text}'")
    seconds = float(match[1]) * SECONDS[match[2]]
    if seconds <= 0:
        raise LabError(f"--{what} must be more than nothing, not '{text}'")
    if seconds > SECONDS_MAX:
        raise LabError(f"--{what} is longer than a year: '{text}'")
    return seconds


def seconds_text(seconds: float) -> str:
    """What seconds_parse reads as exactly that."""
    return f"{Decimal(str(seconds)):f}".removesuffix(".0") + "s"


def share_parse(text: str, what: str = "margin") -> float:
    """3% and 0.03 are the same."""
    match = re.fullmatch(NUMBER + r"\s*(%?)", text.strip())
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0.001 <= share <= 0.5:
        raise LabError(f"--{what} is a share from 0.1% to 50%, such as 3% or 0.03, not '{text}'")
    return share


def change_parse(text: str, what: str = "predict") -> float:
    """A ratio: +5% is 1.05, -3% is 0.97, 0% is 1."""
    match = re.fullmatch(r"([+-]?)" + NUMBER + r"\s*%", text.strip())
    change = float(match[2]) / 100 * (-1 if match[1] == "-" else 1) if match else -1.0
    if change <= -1:
        raise LabError(f"--{what} is a change of speed such as +5% or -3%, not '{text}'")
    return 1 + change


BYTES = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kib": 1 << 10,
    "m": 1 << 20,
    "mib": 1 << 20,
    "g": 1 << 30,
    "gib": 1 << 30,
}


def bytes_parse(text: str, what: str) -> int:
    """500M, 1.5GiB, 4096: binary units, as in hakmem's options."""
    match = re.fullmatch(NUMBER + r"\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in BYTES or float(match[1]) <= 0:
        raise LabError(f"--{what} is a size such as 500M, 1.5G or 4096, not '{text}'")
    size = float(match[1]) * BYTES[match[2]]
    if size > BYTES_MAX:
        raise LabError(f"--{what} is more than any machine has: '{text}'")
    return int(size)
