"""The include rule of src/README.md: a file includes only its own layer and layers below it."""

import re
from pathlib import Path

import pytest
from toolbox import ROOT

SOURCES = ROOT / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
LAYER = re.compile(r"^([a-z]+)  +\S", re.MULTILINE)


def layers_from_rule() -> list[str]:
    """The layers in the order of the README, the highest first."""
    return LAYER.findall((SOURCES / "README.md").read_text().split("```")[1])


def violations(layer: str, text: str, layers: list[str]) -> list[str]:
    """The includes in TEXT, a file of LAYER, that the rule forbids."""
    allowed = layers[layers.index(layer) :]
    forbidden = []
    for kind, name in INCLUDE.findall(text):
        first = name.split("/")[0]
        if first == "hakmem":
            if layer != "api":  # what programs see is the highest layer's business
                forbidden.append(name)
        elif kind == "<":
            if first in layers:
                forbidden.append(name)
        elif first not in allowed or not (SOURCES / name).is_file():
            forbidden.append(name)
    return forbidden


def source_files() -> list[Path]:
    return sorted(path for path in SOURCES.rglob("*") if path.suffix in {".c", ".h"})


def test_every_folder_is_a_layer() -> None:
    folders = {path.name for path in SOURCES.iterdir() if path.is_dir()}
    assert folders <= set(layers_from_rule())


def test_no_include_reaches_upward() -> None:
    layers = layers_from_rule()
    found = {
        str(path.relative_to(ROOT)): broken
        for path in source_files()
        if (broken := violations(path.relative_to(SOURCES).parts[0], path.read_text(), layers))
    }
    assert source_files()
    assert not found


@pytest.mark.parametrize(
    ("layer", "line"),
    [
        ("base", '#include "os/os.h"'),
        ("ace", '#include "os/os.h"'),
        ("os", ' #  include "api/options.h"'),
        ("os", '#include "os/no_such_file.h"'),
        ("os", '#include "os.h"'),
        ("os", "#include <api/options.h>"),
        ("span", "#include <hakmem/hakmem.h>"),
    ],
)
def test_a_planted_violation_is_caught(layer: str, line: str) -> None:
    assert violations(layer, f"int before;\n{line}\nint after;\n", layers_from_rule())


def test_what_the_law_allows_passes() -> None:
    text = '#include "base/bits.h"\n#include "os/os.h"\n#include <stddef.h>\n'
    assert not violations("os", text, layers_from_rule())
