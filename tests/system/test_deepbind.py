"""Plugins opened with RTLD_DEEPBIND, which find libc's malloc before hakmem's (docs/compat.md, item 3): all is well with
./hakmem run --no-deepbind; without it a block that meets the other malloc ends the program with a line that helps."""

import re
import signal
from pathlib import Path

import pytest
from toolbox import ROOT, Build, compile_c, environment, only_line, run, run_well, tool

PROGRAM = Path("tests/compat/deepbind")
GIVERS = ["malloc", "strdup", "realpath", "asprintf", "getline"]
WAYS = ["give", "take", "keep"]

OUTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int outer(void) {
    void *inner = dlopen("libinner.so", RTLD_NOW | RTLD_DEEPBIND);
    if (inner == NULL) puts(dlerror());
    return inner == NULL;
}
"""
RUNPATH_USER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *outer = dlopen(argv[argc - 1], RTLD_NOW);
    int (*call)(void) = outer ? (int (*)(void))dlsym(outer, "outer") : NULL;
    if (call == NULL) return 2;
    return call();
}
"""
NAMESPACE_USER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    Lmid_t where = LM_ID_BASE;
    void *plugin = dlmopen(LM_ID_NEWLM, argv[argc - 1], RTLD_NOW | RTLD_DEEPBIND);
    if (plugin == NULL || dlinfo(plugin, RTLD_DI_LMID, &where) != 0) return 2;
    puts(where == LM_ID_BASE ? "base" : "new");
    return 0;
}
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("giver", GIVERS)
def test_with_the_wrapper_all_blocks_are_hakmems(build: Build, way: str, giver: str) -> None:
    result = build.run(build.directory / PROGRAM, way, giver, options=("--no-deepbind",))
    assert (result.returncode, result.stdout, result.stderr) == (0, "ok deepbind\n", "")


@pytest.mark.parametrize("giver", GIVERS)
def test_on_libc_alone_it_works(build: Build, giver: str) -> None:
    """The program is right, and what fails below fails by the flag."""
    for way in WAYS:
        assert run_well(build.directory / PROGRAM, way, giver) == "ok deepbind\n"


def test_a_block_of_libcs_ends_the_host_with_a_line_that_helps(build: Build) -> None:
    """malloc in the plugin is libc's: the host's free finds out at the first block."""
    result = build.run(build.directory / PROGRAM, "give", "malloc")
    assert result.returncode == -signal.SIGABRT
    line = only_line(result.stderr)
    assert re.match(r"hakmem: 0x[0-9a-f]+ is not the start of a block of hakmem", line)
    assert "RTLD_DEEPBIND" in line
    assert "--no-deepbind" in line


def test_libcs_blocks_can_be_handed_back(build: Build) -> None:
    result = build.run(build.directory / PROGRAM, "give", "malloc", env={"HAKMEM_FOREIGN_FREE": "libc"})
    assert (result.returncode, result.stdout, result.stderr) == (0, "ok deepbind\n", "")


LOADER_USER = r"""
#include <dlfcn.h>
#include <hakmem/hakmem.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **arguments) {
    if (count > 1 && hak_option_set("foreign_free", arguments[1]) != 0) return 1;
    void *(*of_libc)(size_t) = (void *(*)(size_t))dlsym(dlopen("libc.so.6", RTLD_LAZY), "malloc");
    void *block = of_libc(100);
    dlopen("/nowhere/at/all.so", RTLD_NOW);
    free(block);
    puts(dlerror() != NULL ? "said" : "nothing");
}
"""


@pytest.mark.parametrize(("set_to", "arguments"), [("libc", []), (None, ["libc"])])
def test_handing_back_leaves_dlerror_alone(
    build: Build, tmp_path: Path, set_to: str | None, arguments: list[str]
) -> None:
    """Whether the option is set at the start or by a call: libc's free is looked up then, not at the first block."""
    link = [str(build.library), f"-Wl,-rpath,{build.directory}", f"-I{ROOT / 'include'}"]
    program = compile_c(tmp_path / "user", LOADER_USER, *link)
    assert run_well(program, *arguments, env=environment(HAKMEM_FOREIGN_FREE=set_to)) == "said\n"


@pytest.fixture
def runpath_user(tmp_path: Path) -> tuple[Path, Path]:
    """A program, and a library whose plugin only its own RUNPATH finds."""
    (tmp_path / "inner").mkdir()
    compile_c(tmp_path / "inner/libinner.so", "int inner;", "-shared", "-fPIC")
    flags = ["-shared", "-fPIC", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/inner"]
    return compile_c(tmp_path / "user", RUNPATH_USER), compile_c(tmp_path / "outer.so", OUTER, *flags)


def test_the_wrapper_keeps_the_callers_runpath(build: Build, runpath_user: tuple[Path, Path]) -> None:
    """The loader knows the caller by its return address: the wrapper must not stand between."""
    program, outer = runpath_user
    assert run_well(program, outer) == ""
    result = build.run(program, outer, options=("--no-deepbind",))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_the_wrapper_keeps_namespaces(build: Build, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "user", NAMESPACE_USER)
    plugin = compile_c(tmp_path / "plugin.so", "int plugin;", "-shared", "-fPIC")
    result = build.run(program, plugin, options=("--no-deepbind",))
    assert (result.returncode, result.stdout, result.stderr) == (0, "new\n", "")


def test_the_wrapper_goes_on_by_jumps(build: Build) -> None:
    """In the code, too: a call in place of the jump works until somebody relies on the return address."""
    text = run_well(tool("objdump"), "-d", "--no-show-raw-insn", build.directory / "libhakmem-no-deepbind.so")
    for name in ("dlopen", "dlmopen"):
        body = text.split(f"<{name}>:\n", 1)[1].split("\n\n", 1)[0]
        assert re.search(r"\bjmp +\*|\bbr\s+x", body), body


def test_a_missing_wrapper_is_said(build: Build, tmp_path: Path) -> None:
    library = tmp_path / "libhakmem.so"
    library.write_bytes(build.library.read_bytes())
    result = run(build.launcher, "--no-deepbind", library, "--", "true")
    assert result.returncode == 125
    assert "libhakmem-no-deepbind.so" in only_line(result.stderr)
