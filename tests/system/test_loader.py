"""What the dynamic loader asks of a library that it opens late, or under audit (docs/compat.md, items 1 and 4)."""

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from toolbox import ROOT, Build, compile_c, environment, only_line, run, run_well

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


RESOLVER = r"""
#include <stdlib.h>
#include <string.h>
enum { BLOCKS = 60 };
static char *early[BLOCKS];
char *block(int i) { return early[i]; }
static int chosen(void) { return BLOCKS; }
static int (*resolve(void))(void) {
    for (int i = 0; i < BLOCKS; i++) {
        early[i] = i % 2 ? malloc(10 << i % 15) : calloc(1, 10 << i % 15);
        if (early[i]) memset(early[i], i, 10 << i % 15);
        free(realloc(malloc(100), 300));
    }
    return chosen;
}
static int choose(void) __attribute__((ifunc("resolve")));
int blocks(void) { return choose(); }
"""

SETTINGS = r"""
#include <hakmem/hakmem.h>
#include <stdio.h>
#include <stdlib.h>
const char *hakmem_conf = "decay:2s,window:64M,bin_depth:100,dekay:1s";
char *block(int i);
int blocks(void);
int main(void) {
    char decay[20], window[20], depth[200];
    for (int i = 0; i < blocks(); i++) {
        char *kept = realloc(block(i), 20 << i % 15);
        for (int j = 0; j < 10 << i % 15; j++)
            if (kept[j] != i) return 1;
        free(kept);
    }
    hak_option_get("decay", decay, sizeof decay);
    hak_option_get("window", window, sizeof window);
    hak_option_get("bin_depth", depth, sizeof depth);
    printf("%s %s %s %s", decay, window, depth, hak_option_source("decay"));
}
"""


def test_settings_of_a_program_that_is_not_relocated_yet(build: Build, tmp_path: Path) -> None:
    """A library that allocates in an IFUNC resolver, with hakmem linked behind it: hakmem is relocated before, the program, whose
    settings are a pointer, after."""
    library = compile_c(tmp_path / "libresolver.so", RESOLVER, "-shared", "-fPIC")
    link = ["-Wl,--no-as-needed", library, build.library, f"-Wl,-rpath,{tmp_path}:{build.directory}"]
    program = compile_c(
        tmp_path / "program", SETTINGS, f"-I{ROOT / 'include'}", "-fPIE", "-pie", *map(str, link)
    )
    result = run(program)
    assert (result.returncode, result.stdout) == (0, "2s 64MiB 100 program"), result.stderr
    assert only_line(result.stderr).startswith("hakmem: hakmem_conf: dekay is not an option")
