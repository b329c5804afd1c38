"""Programs in processes that may not have what they ask for. A refusal may end in the program's own words
about memory; never in a crash, and never where the same program runs on the allocator it always had."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from toolbox import Build, cannot_run, compile_c, run, tool

ADDRESS_LIMITS_MIB = [64, 128, 256, 512, 1024, 2048, 4096]

PYTHON_WORK = "print(sum(len(str(n)) for n in range(20000)), len(sorted('xyz' * 5000)))"
PYTHON_GREED = """
import sys
blocks = []
try:
    while True:
        blocks.append(bytes(int(sys.argv[1])))
except MemoryError:
    count = len(blocks)
    del blocks
    again = [bytes(100) for _ in range(1000)]
    print("refused", count > 0)
"""
PYTHON_LATE_LIMIT = """
import resource
first = [bytes(1000) for _ in range(1000)]
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (8 << 20), hard))
try:
    second = bytes(1 << 30)
except MemoryError:
    print("refused")
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
print(len(bytes(64 << 20)) >> 20)
"""
BASH_WORK = 'for ((i = 0; i < 3000; i++)); do a[i]=$i$i; done; echo ${#a[@]} "${a[1234]}"'
THREADLESS = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
static void *nothing(void *unused) { return unused; }
int main(void) {
    struct rlimit none = {1, 1};
    setrlimit(RLIMIT_NPROC, &none);
    pthread_t thread;
    int refused = pthread_create(&thread, NULL, nothing, NULL) != 0;
    for (int i = 0; i < 2000; i++) {
        char *block = malloc((size_t)1 << (i % 24));
        if (block == NULL) return 1;
        memset(block, 1, (size_t)1 << (i % 24));
        free(block);
    }
    printf("done %s\\n", refused ? "without threads" : "with threads");
    return 0;
}
"""


def limited(limit: str, *command: str | Path) -> list[str | Path]:
    return ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", *command]


def on_hakmem(build: Build, limit: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """The launcher itself lives under the limit too."""
    line = limited(limit, build.launcher, build.library, "--", *command)
    return run(*line, env=build.environment(PYTHONMALLOC="malloc"))


def plainly(limit: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return run(*limited(limit, *command))


@pytest.mark.parametrize("mebibytes", ADDRESS_LIMITS_MIB)
@pytest.mark.parametrize("program", ["python3", "bash"])
def test_address_space_limit(build: Build, mebibytes: int, program: str) -> None:
    command = [sys.executable, "-c", PYTHON_WORK] if program == "python3" else ["bash", "-c", BASH_WORK]
    limit = f"-v {mebibytes * 1024}"
    plain = plainly(limit, *command)
    result = on_hakmem(build, limit, *command)
    assert result.returncode >= 0, result.stderr
    if plain.returncode == 0:
        assert (result.returncode, result.stdout, result.stderr) == (0, plain.stdout, "")


@pytest.mark.parametrize("block", [100, 5000, 100_000, 3_000_000])
@pytest.mark.parametrize("mebibytes", [128, 512])
def test_asking_until_it_is_refused(build: Build, mebibytes: int, block: int) -> None:
    result = on_hakmem(build, f"-v {mebibytes * 1024}", sys.executable, "-c", PYTHON_GREED, str(block))
    assert (result.returncode, result.stdout, result.stderr) == (0, "refused True\n", "")


def test_most_of_the_address_space_can_be_used(build: Build) -> None:
    """What hakmem reserves for itself under a limit is a small part of it."""
    script = "print(len(bytes(int(512 * 0.7) << 20)) >> 20)"
    result = on_hakmem(build, f"-v {512 * 1024}", sys.executable, "-c", script)
    assert (result.returncode, result.stdout) == (0, "358\n"), result.stderr


def test_limit_set_after_the_start(build: Build) -> None:
    result = on_hakmem(build, "-v unlimited", sys.executable, "-c", PYTHON_LATE_LIMIT)
    assert (result.returncode, result.stdout, result.stderr) == (0, "refused\n64\n", "")


@pytest.mark.parametrize("mebibytes", [32, 256])
def test_data_limit(build: Build, mebibytes: int) -> None:
    limit = f"-d {mebibytes * 1024}"
    plain = plainly(limit, sys.executable, "-c", PYTHON_WORK)
    result = on_hakmem(build, limit, sys.executable, "-c", PYTHON_WORK)
    assert result.returncode >= 0
    if plain.returncode == 0:
        assert (result.returncode, result.stdout, result.stderr) == (0, plain.stdout, "")


def test_small_stack(build: Build) -> None:
    result = on_hakmem(build, "-s 256", sys.executable, "-c", PYTHON_WORK)
    assert (result.returncode, result.stderr) == (0, "")


def test_locked_memory(build: Build) -> None:
    script = (
        "import ctypes; print(ctypes.CDLL(None).mlockall(3)); x = [bytes(3000) for _ in range(9000)]; del x"
    )
    result = on_hakmem(build, "-c 0", sys.executable, "-c", script)
    assert result.returncode == 0, result.stderr


def test_no_threads_to_be_had(build: Build, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "threadless", THREADLESS, "-pthread")
    result = run(build.launcher, build.library, "--", program, env=build.environment())
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("done")


@pytest.mark.parametrize("closed", ["0", "1", "2"])
def test_a_standard_descriptor_is_closed(build: Build, closed: str) -> None:
    """What hakmem opens for itself must not take the place of a descriptor that the program finds closed."""
    script = f"import os\ntry:\n os.fstat({closed})\n os._exit(1)\nexcept OSError:\n os._exit(0)"
    line = ["sh", "-c", f'exec "$@" {closed}>&-', "sh", build.launcher, build.library, "--"]
    for environment in (build.environment(), build.environment(HAKMEM_STATS="1")):
        assert run(*line, sys.executable, "-c", script, env=environment).returncode == 0


def test_descriptors_are_all_closed_before_the_end(build: Build) -> None:
    script = "import os; os.closerange(0, 4096)"
    result = build.run(sys.executable, "-c", script, options=("--stats",))
    assert result.returncode == 0


def test_hardly_a_descriptor_to_be_had(build: Build) -> None:
    """Four are what the loader needs; the fifth is for the launcher's and the library's own files."""
    result = on_hakmem(build, "-n 5", "sh", "-c", "echo served")
    assert (result.returncode, result.stdout) == (0, "served\n"), result.stderr


def test_unknown_options_are_named_and_ignored(build: Build) -> None:
    result = build.run("echo", "out", env={"HAKMEM_BIN_DEPHT": "4"})
    assert (result.returncode, result.stdout) == (0, "out\n")
    assert "HAKMEM_BIN_DEPTH" in result.stderr.upper()


@pytest.fixture
def without_kernel_files() -> list[str]:
    """The beginning of a command: what follows finds /proc and /sys empty."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    hide = "mount -n -t tmpfs none /sys && mount -n -t tmpfs none /proc"
    namespace = [tool("unshare"), *user, "--mount", "--propagation", "private", "sh", "-c"]
    probe = run(*namespace, f"{hide} && ! test -e /proc/self && ! test -e /sys/kernel")
    if probe.returncode != 0:
        cannot_run(f"/proc cannot be hidden here: {probe.stderr.strip()}")
    return [*namespace, f'{hide} && exec "$@"', "sh"]


def test_neither_proc_nor_sys(build: Build, without_kernel_files: list[str]) -> None:
    """The launcher and its proof, a whole program, and the statistics at its end."""
    line = [*without_kernel_files, build.launcher, "--stats", build.library, "--"]
    result = run(*line, sys.executable, "-c", PYTHON_WORK, env=build.environment(PYTHONMALLOC="malloc"))
    plain = run(sys.executable, "-c", PYTHON_WORK)
    assert (result.returncode, result.stdout) == (0, plain.stdout), result.stderr
    assert "statistics" in result.stderr


@pytest.mark.parametrize("program", ["compat/small_stacks", "preload/api/calloc_test"])
def test_threads_with_neither_proc_nor_sys(
    build: Build, without_kernel_files: list[str], program: str
) -> None:
    path = build.directory / "tests" / program
    if not path.is_file():
        cannot_run(f"{path} was not built")
    variables = build.environment(LD_PRELOAD=None, EXPECT_HAKMEM="1")
    result = run(*without_kernel_files, "env", f"LD_PRELOAD={build.library}", path, env=variables)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
