"""The manual page says what the header declares, no less and no more, and is well-formed."""

import re

from toolbox import ROOT, run, tool

PAGE = ROOT / "docs/man/hakmem.3"


def declared() -> set[str]:
    header = (ROOT / "include/hakmem/hakmem.h").read_text()
    return set(re.findall(r"^HAK_API [^(]*?(hak_\w+)\(", header, re.MULTILINE))


def test_page_has_every_function() -> None:
    page = PAGE.read_text()
    assert declared() == set(re.findall(r"^\.Fn (hak_\w+) (?:\"|void$)", page, re.MULTILINE))
    assert declared() == set(re.findall(r"^\.Nm (hak_\w+)(?: ,)?$", page, re.MULTILINE))


def test_page_is_well_formed() -> None:
    result = run(tool("groff"), "-mdoc", "-Tutf8", "-ww", PAGE)
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.stdout
