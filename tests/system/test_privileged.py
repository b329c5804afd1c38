"""A program that runs with more rights than its caller (AT_SECURE) listens to nothing in its environment
(docs/compat.md, item 4). The loader preloads nothing into it: hakmem is there when it was linked."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from toolbox import Build, cannot_run, compile_c, environment, has_statistics, run

PROGRAM = """
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
extern size_t hak_usable_size(const void *);
extern char **environ;
int main(void) {
    char *block = strdup("served by hakmem, or this ends");
    if (hak_usable_size(block) < strlen(block)) return 1;
    for (size_t size = 1; size < 10000000; size *= 3) {
        char *more = malloc(size);
        if (more == NULL) return 2;
        memset(more, 1, size);
        free(more);
    }
    free(block);
    printf("secure %lu\\n", getauxval(AT_SECURE));
    for (char **at = environ; *at != NULL; at++)
        if (strncmp(*at, "HAKMEM", strlen("HAKMEM")) == 0) puts(*at);
    return 0;
}
"""
# One that would be seen at work, one that would be complained of, and one that would write a file.
VARIABLES = {"HAKMEM_STATS": "1", "HAKMEM_NO_SUCH_OPTION": "1"}
OTHERS = {"HAKMEMORY": "1"}
"""Not hakmem's."""
NOBODY = 65534


@pytest.fixture(params=["static", "static-pie", "shared"])
def program(build: Build, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Linked with the archive, with libc inside or outside."""
    flags = {"static": ["-static"], "static-pie": ["-static-pie"], "shared": []}[request.param]
    archive = build.directory / "libhakmem.a"
    return compile_c(tmp_path / "privileged", PROGRAM, "-Wl,-u,malloc", str(archive), "-pthread", *flags)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Where any user may look; pytest's own folders are private."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def proof(public_folder: Path) -> Path:
    """A file that any user may write."""
    file = public_folder / "proof"
    file.write_text("")
    file.chmod(0o666)
    return file


def test_without_more_rights_it_listens(program: Path, proof: Path) -> None:
    """What follows would otherwise prove nothing."""
    variables = {"HAKMEM_PROOF": str(proof), **VARIABLES, **OTHERS}
    result = run(program, env=environment(**variables))
    secure, *passed_on = result.stdout.splitlines()
    assert (result.returncode, secure) == (0, "secure 0")
    assert set(passed_on) == {f"{name}={value}" for name, value in variables.items()}
    assert "HAKMEM_NO_SUCH_OPTION" in result.stderr
    assert has_statistics(result.stderr)
    assert proof.read_text().endswith(" served\n")


def test_with_more_rights_it_does_not(program: Path, public_folder: Path, proof: Path) -> None:
    if os.geteuid() != 0:
        cannot_run("only root may make such files")
    setuid = public_folder / "setuid"
    shutil.copy(program, setuid)
    os.chown(setuid, NOBODY, NOBODY)
    setuid.chmod(0o4755)
    os.chown(proof, NOBODY, NOBODY)  # or nothing would be left in it anyway
    result = run(setuid, env=environment(HAKMEM_PROOF=str(proof), **VARIABLES, **OTHERS))
    if "secure 0" in result.stdout:
        cannot_run("this file system gives no rights (nosuid)")
    # Nor does what it starts, which may be privileged in earnest, and without a sign of whose variables these are.
    assert (result.returncode, result.stdout, result.stderr) == (0, "secure 1\nHAKMEMORY=1\n", "")
    assert proof.read_text() == ""
