"""The manual page says what the header declares, no less and no more, and is well-formed; its examples compile."""

import re
from pathlib import Path

from toolbox import ROOT, compile_c, run, tool

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


def test_examples_compile(tmp_path: Path) -> None:
    examples = re.findall(r"^\.Bd -literal[^\n]*\n(.*?)^\.Ed$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for number, source in enumerate(examples):
        flags = ["-c", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"]
        compile_c(tmp_path / f"example{number}.o", source, *flags)
