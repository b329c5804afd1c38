"""The dynamic loader's locks, held by an unwinder that allocates while plugins with thread-local storage come and go:
tests/compat/loader_lock.c, with such a plugin."""

from pathlib import Path

from toolbox import Build, cannot_run, compile_c, environment, run

PLUGIN = """
#include <stdlib.h>
#include <string.h>
static __thread char storage[50000];
static __thread int used;
int use_thread_storage(void) {
    char *copy = strdup("a block");
    memset(storage, ++used, sizeof storage);
    free(copy);
    return used;
}
"""


def test_an_unwinder_allocates_while_plugins_come_and_go(build: Build, tmp_path: Path) -> None:
    program = build.directory / "tests/compat/loader_lock"
    if not program.is_file():
        cannot_run(f"{program} was not built")
    plugin = compile_c(tmp_path / "plugin.so", PLUGIN, "-shared", "-fPIC")
    for _ in range(20):  # what happens at the start of a process decides
        result = run(program, plugin, env=environment(LD_PRELOAD=str(build.library), EXPECT_HAKMEM="1"))
        assert (result.returncode, result.stderr) == (0, ""), result.stdout
        assert result.stdout.startswith("ok loader_lock")
