"""gcc, g++ and clang: the object file is the same, byte by byte, and the program does what it should."""

import pytest
from hakmem_lab.workloads.footprint_inputs import SHARED
from trial import Side, Trial, file_hash

SORT = r"""
#include <stdio.h>
#include <stdlib.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) {
    int *numbers = malloc(100000 * sizeof *numbers);
    for (int i = 0; i < 100000; i++) numbers[i] = (int)((i * 7919L) % 100003);
    qsort(numbers, 100000, sizeof *numbers, compare);
    printf("%d %d\n", numbers[0], numbers[99999]);
    free(numbers);
    return 0;
}
"""
THREADS = r"""
#include <iostream>
#include <map>
#include <regex>
#include <stdexcept>
#include <thread>
#include <vector>
int main() {
    std::vector<std::thread> threads;
    std::vector<std::map<std::string, std::vector<int>>> maps(4);
    for (auto &map : maps)
        threads.emplace_back([&map] {
            for (int i = 0; i < 20000; i++) map["key" + std::to_string(i % 500)].push_back(i);
        });
    for (auto &thread : threads) thread.join();
    std::size_t total = 0;
    for (auto &map : maps)
        for (auto &entry : map) total += entry.second.size();
    int caught = 0;
    for (int i = 0; i < 1000; i++)
        try { throw std::runtime_error(std::string(i, 'x')); } catch (const std::exception &) { caught++; }
    bool refused = false;
    const volatile char *seen = nullptr; // or the compiler may leave the block out
    try { std::vector<char> huge(static_cast<std::size_t>(-1) / 4); seen = huge.data(); } catch (const std::bad_alloc &) { refused = true; }
    std::cout << total << ' ' << caught << ' ' << (refused && !seen) << ' '
              << std::regex_match("abc123", std::regex("[a-z]+[0-9]+")) << '\n';
}
"""


def compiled(side: Side, compiler: str, name: str, source: str, *options: str) -> tuple[str, str]:
    """The hash of the object file, and what the program prints."""
    (side.folder / name).write_text(source)
    side.run(compiler, *options, "-pthread", "-c", name, "-o", "program.o")
    side.run(compiler, "-pthread", "program.o", "-o", "program")
    return file_hash(side.folder / "program.o"), side.run(side.folder / "program")


def test_gcc(trial: Trial) -> None:
    """A C program with debugging information, then the program itself"""
    gcc = trial.program("gcc", "--version")
    _, printed = trial.compare(lambda side: compiled(side, gcc, "sort.c", SORT, "-O2", "-g"))
    assert printed == "0 100002\n"


def test_gxx(trial: Trial) -> None:
    """A C++ program with threads and exceptions, then the program itself"""
    gxx = trial.program("g++", "--version")
    _, printed = trial.compare(lambda side: compiled(side, gxx, "threads.cc", THREADS, "-O1"))
    assert printed == "80000 1000 1 1\n"


def test_clang(trial: Trial) -> None:
    """The same C++ program by clang, then the program itself"""
    clang = trial.program("clang++", "--version")
    _, printed = trial.compare(lambda side: compiled(side, clang, "threads.cc", THREADS, "-O1"))
    assert printed == "80000 1000 1 1\n"


@pytest.mark.soak
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_large_file(trial: Trial, compiler: str) -> None:
    """A C++ file with a hundred instances of a template, optimised, with debugging information"""
    path = trial.program(compiler, "--version")
    heavy = (SHARED / "heavy.cpp").read_text()
    source = heavy.replace("all<24>", "all<120>")
    assert source != heavy
    options = ("-std=c++17", "-O2", "-g", "-ftemplate-depth=1000")
    _, printed = trial.compare(lambda side: compiled(side, path, "heavy.cc", source, *options))
    # Each instance N finds one word of four letters, so that it adds N itself and 4 N.
    assert printed == f"{sum(5 * n for n in range(121))}\n"
