"""Compilers know what malloc does: they remove pairs of malloc and free, make calloc of malloc and memset, fold sizes
and comparisons, and count on alignment (docs/compat.md, "also"). Programs must not notice."""

from pathlib import Path

import pytest
from toolbox import Build, compile_c

# Compiled with everything the compiler knows. Each line of the output is one pattern.
PATTERNS = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static volatile size_t opaque = 1000;
static void *volatile kept;
static int sum(const unsigned char *bytes, size_t count) {
    int total = 0;
    for (size_t i = 0; i < count; i++) total += bytes[i];
    return total;
}
int main(void) {
    int failures = 0;
    for (int i = 0; i < 1000; i++) free(malloc(100)); /* removed */
    unsigned char *zero = malloc(opaque); /* becomes calloc */
    if (zero == NULL) return 1;
    memset(zero, 0, opaque);
    failures += sum(zero, opaque) != 0;
    memset(zero, 1, opaque);
    free(zero);
    zero = calloc(1, opaque);
    failures += zero == NULL || sum(zero, opaque) != 0;
    free(zero);
    zero = malloc(opaque);
    for (size_t i = 0; i < opaque; i++) zero[i] = 0; /* a loop that becomes memset, and both calloc */
    failures += sum(zero, opaque) != 0;
    char *text = strdup("constant"), *grown = realloc(text, 5000);
    failures += grown == NULL || strcmp(grown, "constant") != 0;
    free(grown);
    void *aligned = aligned_alloc(256, opaque / 250 * 256);
    failures += aligned == NULL || (uintptr_t)aligned % 256 != 0;
    free(aligned);
    kept = malloc(PTRDIFF_MAX - opaque); /* kept: or a compiler assumes that it worked */
    failures += kept != NULL; /* errno is not asked: clang believes that malloc leaves it alone */
    void *one = malloc(0), *other = malloc(0);
    failures += one == NULL || one == other;
    free(one);
    free(other);
    free(zero);
    free(NULL);
    printf("%d\\n", failures);
    return failures;
}
"""
CXX_PATTERNS = """
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>
struct Wide { alignas(64) char bytes[200]; };
static int pairs(int n) {
    int total = 0;
    for (int i = 0; i < n; i++) { /* removed, or not */
        int *one = new int(i);
        total += *one;
        delete one;
        auto many = std::make_unique<Wide[]>(3);
        total += many[0].bytes[0];
        std::vector<std::string> texts(3, std::string(50, 'x'));
        total += (int)texts[2].size();
    }
    return total;
}
int main() {
    int total = pairs(1000);
    std::printf("%d\\n", total - 1000 * 999 / 2 - 50000);
    return total != 1000 * 999 / 2 + 50000;
}
"""


@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_what_compilers_make_of_malloc(build: Build, tmp_path: Path, compiler: str, level: str) -> None:
    program = compile_c(tmp_path / "patterns", PATTERNS, level, compiler=compiler)
    assert build.serve(program) == "0\n"


@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_what_compilers_make_of_new(build: Build, tmp_path: Path, level: str) -> None:
    program = compile_c(tmp_path / "patterns", CXX_PATTERNS, level, "-std=c++17", compiler="g++")
    assert build.serve(program) == "0\n"
