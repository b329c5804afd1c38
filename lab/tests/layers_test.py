"""The layers of the package: a module includes only modules of its own layer and of those below."""

from __future__ import annotations

import re
from pathlib import Path

import hakmem_lab
import pytest

PACKAGE = Path(hakmem_lab.__file__).parent
LAYERS = (
    {"errors", "checkout", "files", "grid", "output", "processes", "statistics"},
    {"measure", "workloads", "allocators"},
    {"sight"},
    {"studies"},
    {"reports"},
    {"commands"},
    {"cli", "__main__", "__init__"},
)
IMPORT = re.compile(r"^ *from hakmem_lab\.(\w+)", re.MULTILINE)
MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(part: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_what_a_module_imports_is_not_above_it(module: Path) -> None:
    part = module.relative_to(PACKAGE).parts[0].removesuffix(".py")
    above = [one for one in IMPORT.findall(module.read_text()) if layer_of(one) > layer_of(part)]
    assert above == []
