"""A program that runs with more rights than its caller (AT_SECURE) listens to nothing in its environment
(docs/compat.md, item 4). The loader preloads nothing into it: hakmem is there when it was linked."""

import os
import subprocess
from pathlib import Path

import pytest
from toolbox import Build, cannot_run, compile_c, environment, has_statistics, run, run_well

PROGRAM = """
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
extern size_t hak_usable_size(const void *);
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
    return 0;
}
"""
# One that would be seen at work, one that would be complained of, and one that would write a file.
VARIABLES = {"HAKMEM_STATS": "1", "HAKMEM_NO_SUCH_OPTION": "1"}
NOBODY = 65534


@pytest.fixture(params=["static", "static-pie", "shared"])
def program(build: Build, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Linked with the archive, with libc inside or outside."""
    flags = {"static": ["-static"], "static-pie": ["-static-pie"], "shared": []}[request.param]
    archive = build.directory / "libhakmem.a"
    return compile_c(tmp_path / "privileged", PROGRAM, "-Wl,-u,malloc", str(archive), "-pthread", *flags)


def with_proof(tmp_path: Path) -> tuple[dict[str, str], Path]:
    proof = tmp_path / "proof"
    proof.write_text("")
    proof.chmod(0o666)
    return environment(HAKMEM_PROOF=str(proof), **VARIABLES), proof


def test_without_more_rights_it_listens(program: Path, tmp_path: Path) -> None:
    """What follows would otherwise prove nothing."""
    variables, proof = with_proof(tmp_path)
    result = run(program, env=variables)
    assert (result.returncode, result.stdout) == (0, "secure 0\n")
    assert "HAKMEM_NO_SUCH_OPTION" in result.stderr
    assert has_statistics(result.stderr)
    assert "served" in proof.read_text()


def test_with_more_rights_it_does_not(program: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        cannot_run("only root may make such files")
    variables, proof = with_proof(tmp_path)
    os.chown(program, NOBODY, NOBODY)
    program.chmod(0o4755)
    folder = Path(run_well("mktemp", "-d").strip())
    try:
        folder.chmod(0o755)
        run_well("cp", "--preserve=all", program, folder)
        result = subprocess.run(
            [folder / program.name], env=variables, capture_output=True, text=True, check=False
        )
    finally:
        run_well("rm", "-r", folder)
    if "secure 0" in result.stdout:
        cannot_run("this file system gives no rights (nosuid)")
    assert (result.returncode, result.stdout, result.stderr) == (0, "secure 1\n", "")
    assert proof.read_text() == ""
