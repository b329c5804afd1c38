"""What the dynamic loader asks of a library that it opens late, or under audit (docs/compat.md, items 1 and 4)."""

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from toolbox import Build, environment, run, run_well

COMPAT = Path("tests/compat")
MANY_PLUGINS = "20"


def test_opened_after_twenty_libraries_with_static_tls(build: Build) -> None:
    """Not preloaded: the program's own malloc stays, and hakmem works beside it."""
    output = run_well(build.directory / COMPAT / "tls_dlopen", build.library, MANY_PLUGINS)
    assert "ok tls_dlopen: 20 plugins" in output


def test_the_plugins_ask_for_what_they_should(build: Build) -> None:
    """Otherwise the test before this one tests nothing."""
    with (build.directory / COMPAT / "tls_plugin.so").open("rb") as file:
        segments = [segment["p_memsz"] for segment in ELFFile(file).iter_segments("PT_TLS")]
    assert segments == [64]


@pytest.mark.parametrize(
    "program",
    ["preload/early_start", "preload/libc_users", "preload/late_end", "compat/ifunc"],
)
def test_audited_and_preloaded(build: Build, program: str) -> None:
    """The auditor has a namespace and a libc of its own; the program must get hakmem all the same."""
    auditor = build.directory / COMPAT / "audit_plugin.so"
    variables = environment(LD_AUDIT=str(auditor), LD_PRELOAD=str(build.library), EXPECT_HAKMEM="1")
    result = run(build.directory / "tests" / program, env=variables)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "audited\n" in result.stderr
    assert "hakmem: " not in result.stderr


def test_audited_through_the_command(build: Build) -> None:
    auditor = build.directory / COMPAT / "audit_plugin.so"
    result = build.run("sh", "-c", "echo served", env={"LD_AUDIT": str(auditor)})
    assert (result.returncode, result.stdout) == (0, "served\n"), result.stderr
