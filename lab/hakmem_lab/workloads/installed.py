"""What a workload needs to have installed, and Debian's package for each, from the table that the tests use, too."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING


def package_of(checkout: Checkout, tool: str) -> str:
    for line in (checkout.root / "tests/system/tools.txt").read_text(ENCODING).splitlines():
        words = line.split()
        if words[:1] == [tool]:
            return " ".join(words[1:])
    return tool


def tools_missing(tools: Iterable[str], path: str) -> list[str]:
    return [tool for tool in dict.fromkeys(tools) if shutil.which(tool, path=path) is None]


def installed_check(checkout: Checkout, tools: Iterable[str], path: str, hint: str = "") -> None:
    missing = tools_missing(tools, path)
    if missing:
        packages = dict.fromkeys(package_of(checkout, tool) for tool in missing)
        raise LabError(
            f"not installed: {', '.join(missing)} (on Debian: apt-get install {' '.join(packages)}){hint}"
        )
