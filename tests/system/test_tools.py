"""Tools that programs are run under, or built with, while hakmem serves them: debuggers, profilers, checkers.

Planted defects that these tests were seen to catch stand in tests/defects/.
"""

import re
from pathlib import Path

import pytest
from toolbox import Build, compile_c, environment, only_line, run, run_well, tool

WORK = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *work(void *argument) {
    unsigned seed = (unsigned)(size_t)argument + 1;
    char *blocks[300] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        unsigned slot = rand_r(&seed) % 300, size = 1 + rand_r(&seed) % 5000;
        if (blocks[slot] && blocks[slot][0] != (char)slot) abort();
        if (i % 3) free(blocks[slot]), blocks[slot] = malloc(size);
        else blocks[slot] = realloc(blocks[slot], size);
        memset(blocks[slot], (int)slot, size);
    }
    for (int slot = 0; slot < 300; slot++) free(blocks[slot]);
    return NULL;
}
int main(void) {
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (size_t i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    puts("worked");
    return 0;
}
"""


def worker(folder: Path, rounds: int, *flags: str, compiler: str = "gcc") -> Path:
    return compile_c(
        folder / "worker", WORK, "-g", "-pthread", f"-DROUNDS={rounds}", *flags, compiler=compiler
    )


def preloaded(build: Build, **changes: str) -> dict[str, str]:
    return environment(LD_PRELOAD=str(build.library), **changes)


# ---- debuggers and profilers ----------------------------------------------------------------------------


def gdb(commands: list[str], program: Path) -> list[str | Path]:
    arguments = [part for line in commands for part in ("-ex", line)]
    return [tool("gdb"), "-nx", "-batch", *arguments, program]


def gdb_to_main(build: Build) -> list[str]:
    return [
        f"set environment LD_PRELOAD {build.library}",
        "set startup-with-shell off",
        "break main",
        "run",
    ]


def test_gdb(build: Build, tmp_path: Path) -> None:
    """A breakpoint in malloc, and a backtrace from there."""
    commands = [
        *gdb_to_main(build),
        "info symbol (long) malloc",
        "tbreak malloc",
        "continue",
        "backtrace 3",
        "continue",
    ]
    output = run_well(*gdb(commands, worker(tmp_path, 3000)), env=environment(TERM="dumb"))
    assert re.search(r"malloc in section .* of .*libhakmem\.so", output)
    assert re.search(r"#0 .*malloc.*libhakmem\.so", output)
    assert re.search(r"#[12] .*(worker\.c|main)", output)
    # Its last word: whether gdb tells that it exited depends on which thread is seen to end last.
    assert "worked" in output
    assert "signal" not in output


def test_gdb_calls_malloc(build: Build, tmp_path: Path) -> None:
    """Calls into the stopped process, from inside malloc, too."""
    commands = [
        *gdb_to_main(build),
        "print (int) abs(-4711)",
        "tbreak malloc",
        "continue",
        "print/d (unsigned long) malloc_usable_size((void *) malloc(10))",
        "set $block = (void *) malloc(70000)",
        "call (void) free($block)",
        "print/d (unsigned long) hak_usable_size((void *) calloc(3, 100000)) >= 300000",
        "continue",
    ]
    program = worker(tmp_path, 3000)
    result = run(*gdb(commands, program), env=environment(TERM="dumb"))
    if (
        "$1 = 4711" not in result.stdout
    ):  # some gdb can call nothing on some kernels: then not on glibc either
        on_glibc = run(*gdb(commands[1:], program), env=environment(TERM="dumb"))
        assert "$1 = 4711" not in on_glibc.stdout
        return
    assert "$2 = 16" in result.stdout  # glibc's would be 24
    assert "$3 = 1" in result.stdout
    assert "worked" in result.stdout
    assert "signal" not in result.stdout


def test_valgrind_sees_hakmem_work(build: Build, tmp_path: Path) -> None:
    """As code like any other: memcheck replaces the malloc of libc, not this one. Nothing that hakmem does is an
    error to it."""
    program = worker(tmp_path, 1000)
    result = run(
        *[tool("valgrind"), "-q", "--error-exitcode=9", "--trace-children=no", program],
        env=preloaded(build, HAKMEM_STATS="1"),
    )
    assert (result.returncode, result.stdout) == (0, "worked\n"), result.stderr
    assert "statistics" in result.stderr
    assert "==" not in result.stderr


def test_valgrind_replaces_hakmem(build: Build, tmp_path: Path) -> None:
    """When told to: then memcheck knows the blocks, and finds the leak."""
    leak = compile_c(
        tmp_path / "leak", "#include <stdlib.h>\nint main(void) { return malloc(77) == NULL; }\n"
    )
    result = run(
        *[tool("valgrind"), "--soname-synonyms=somalloc=libhakmem.so*", "--leak-check=full", leak],
        env=preloaded(build),
    )
    assert result.returncode == 0, result.stderr
    assert "definitely lost: 77 bytes in 1 blocks" in result.stderr


def test_heaptrack(build: Build, tmp_path: Path) -> None:
    """Its own preload comes first and hands every call on."""
    program = worker(tmp_path, 3000)
    output = tmp_path / "heaptrack"
    result = run(
        *[tool("heaptrack"), "-o", output, program], env=preloaded(build, HAKMEM_STATS="1", TERM="dumb")
    )
    assert result.returncode == 0, result.stderr
    assert "worked" in result.stdout
    assert re.search(r"statistics of worker", result.stderr), result.stderr
    written = next(tmp_path.glob("heaptrack*.zst"), None) or next(tmp_path.glob("heaptrack*.gz"))
    seen = run_well(tool("heaptrack_print"), written)
    calls = re.search(r"calls to allocation functions: (\d+)", seen)
    assert calls is not None
    assert int(calls[1]) > 8000


def test_perf(build: Build, tmp_path: Path) -> None:
    """Samples fall into hakmem, and their stacks lead back to the program."""
    program = worker(tmp_path, 2_000_000)
    data = tmp_path / "perf.data"
    recorded = run(
        *[tool("perf"), "record", "-q", "-e", "cpu-clock", "-F", "4000", "--call-graph", "dwarf,4096"],
        *["-o", data, program],
        env=preloaded(build),
    )
    if recorded.returncode != 0 and re.search(r"Permission|paranoid|not supported", recorded.stderr):
        pytest.skip("the system allows no sampling")
    assert recorded.returncode == 0, recorded.stderr
    script = run_well("perf", "script", "-i", data, "-F", "comm,ip,sym,dso")
    samples = [sample for sample in script.split("\n\n") if "libhakmem.so" in sample]
    assert len(samples) > 10
    # The end of a thread, and a thread of hakmem's own, have no frame of the program.
    assert sum("(" + str(program) in sample for sample in samples) > len(samples) * 0.8


# ---- sanitizers -----------------------------------------------------------------------------------------


SANITIZERS = [
    pytest.param("gcc", "address", id="gcc-asan"),
    pytest.param("gcc", "thread", id="gcc-tsan"),
    pytest.param("gcc", "leak", id="gcc-lsan"),
    pytest.param("clang", "address", id="clang-asan"),
    pytest.param("clang", "thread", id="clang-tsan"),
    pytest.param("clang", "memory", id="clang-msan"),
]


@pytest.mark.parametrize(("compiler", "sanitizer"), SANITIZERS)
def test_a_program_with_an_allocator_of_its_sanitizer_is_refused(
    build: Build, tmp_path: Path, compiler: str, sanitizer: str
) -> None:
    program = worker(tmp_path, 1000, f"-fsanitize={sanitizer}", compiler=compiler)
    result = build.run(program)
    assert result.returncode == 125
    assert "its own allocator" in only_line(result.stderr)
    assert result.stdout == ""


@pytest.mark.parametrize(("compiler", "sanitizer"), SANITIZERS)
def test_a_program_with_a_sanitizer_is_safe_under_the_preload(
    build: Build, tmp_path: Path, compiler: str, sanitizer: str
) -> None:
    """Preloaded without the launcher: hakmem yields, or the sanitizer says that it will not have it; the program never
    runs on half of each."""
    program = worker(tmp_path, 1000, f"-fsanitize={sanitizer}", compiler=compiler)
    result = run(program, env=preloaded(build))
    if result.returncode == 0:
        assert result.stdout == "worked\n"
        assert result.stderr == ""
    else:
        assert result.returncode == 1
        assert re.search("ASan runtime does not come first|hakmem: this program is built with", result.stderr)


@pytest.mark.parametrize("sanitizer", ["address", "leak"])
def test_sanitizers_are_not_disarmed_by_the_preload(build: Build, tmp_path: Path, sanitizer: str) -> None:
    """Its own malloc, in a library, would come behind hakmem's: then it would find nothing, and say so by a status of 0."""
    program = worker(tmp_path, 1000, f"-fsanitize={sanitizer}")
    result = run(program, env=preloaded(build) | {"ASAN_OPTIONS": "verify_asan_link_order=0"})
    assert result.returncode == 1
    assert only_line(result.stderr) == (
        "hakmem: this program is built with a sanitizer, which needs a malloc of its own"
    )


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_program_with_the_undefined_behaviour_sanitizer_is_served(
    build: Build, tmp_path: Path, compiler: str
) -> None:
    program = worker(tmp_path, 1000, "-fsanitize=undefined", compiler=compiler)
    assert build.serve(program) == "worked\n"
