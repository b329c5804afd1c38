"""An installed tree, used as a stranger would: by find_package, by pkg-config and by hand. Whichever way a
program is linked, every block in it must be hakmem's."""

from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from toolbox import ROOT, Build, environment, has_statistics, run, run_well, soname, tool

# strdup's block comes from inside libc: hak_free ends the process if it is not hakmem's.
USER_C = """
#include <hakmem/hakmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    char *inside = strdup("a block that libc asked for");
    void *own = malloc(100);
    if (hak_usable_size(inside) < strlen(inside) + 1 || hak_usable_size(own) < 100) return 1;
    hak_free(inside);
    hak_free(own);
    printf("hakmem %s\\n", hak_version());
    return 0;
}
"""
USER_CXX = """
#include <hakmem/hakmem.h>
#include <cstdio>
#include <memory>
#include <string>
int main() {
    auto own = std::make_unique<std::string>(1000, 'x');
    if (hak_usable_size(own.get()) < sizeof *own || hak_usable_size(own->data()) < 1000) return 1;
    std::printf("hakmem %s\\n", hak_version());
}
"""
# Asks for nothing itself, so no reference of its own draws malloc out of an archive.
SILENT_C = "int main(void) { return 0; }\n"

PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(user C CXX)
{find}
foreach(shape IN ITEMS shared static object)
    foreach(program IN ITEMS user.c user.cc silent.c)
        string(REPLACE "." "_" target "${{program}}_${{shape}}")
        add_executable(${{target}} ${{program}})
        target_link_libraries(${{target}} PRIVATE hakmem::${{shape}})
    endforeach()
endforeach()
add_library(headers OBJECT user.c)
target_link_libraries(headers PRIVATE hakmem::headers)
"""
SHAPES = ["shared", "static", "object"]


@pytest.fixture(scope="module")
def installed(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("prefix")
    run_well("cmake", "--install", build.directory, "--prefix", prefix)
    return prefix


@pytest.fixture(scope="module")
def library_folder(installed: Path) -> Path:
    return next(installed.rglob("libhakmem.so")).parent


def write_programs(folder: Path, find: str) -> None:
    (folder / "user.c").write_text(USER_C)
    (folder / "user.cc").write_text(USER_CXX)
    (folder / "silent.c").write_text(SILENT_C)
    (folder / "CMakeLists.txt").write_text(PROJECT.format(find=find))


def build_project(folder: Path, *definitions: str, build: Path | None = None) -> Path:
    build = build or folder / "build"
    run_well("cmake", "-S", folder, "-B", build, *definitions)
    run_well("cmake", "--build", build, "--parallel", "2")
    return build


@pytest.fixture(scope="module")
def project(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    write_programs(folder, "find_package(hakmem 0.1 CONFIG REQUIRED)")
    return build_project(folder, f"-DCMAKE_PREFIX_PATH={installed}")


@pytest.fixture(scope="module")
def subproject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("subproject")
    write_programs(folder, f'add_subdirectory("{ROOT}" hakmem)')
    return build_project(folder, "-DCMAKE_BUILD_TYPE=Release")


def assert_is_served(program: Path, **variables: str) -> None:
    result = run(program, env=environment(HAKMEM_STATS="1", **variables))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("hakmem ")
    assert has_statistics(result.stderr)


def defines_malloc(program: Path) -> bool:
    with program.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(section, SymbolTableSection)
        symbols = [
            *(section.get_symbol_by_name("malloc") or []),
            *(section.get_symbol_by_name("hak_version") or []),
        ]
        return len(symbols) == 2 and all(symbol["st_shndx"] != "SHN_UNDEF" for symbol in symbols)


def needed_libraries(program: Path) -> list[str]:
    with program.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynamic")
        assert isinstance(section, DynamicSection)
        return [tag.needed for tag in section.iter_tags("DT_NEEDED")]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("language", ["c", "cc"])
def test_find_package(project: Path, shape: str, language: str) -> None:
    assert_is_served(project / f"user_{language}_{shape}")


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("language", ["c", "cc"])
def test_add_subdirectory(subproject: Path, shape: str, language: str) -> None:
    assert_is_served(subproject / f"user_{language}_{shape}")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_program_that_asks_for_nothing_is_linked_too(project: Path, shape: str) -> None:
    program = project / f"silent_c_{shape}"
    if shape == "shared":
        assert soname() in needed_libraries(program)
    else:
        assert defines_malloc(program)
    assert has_statistics(run(program, env=environment(HAKMEM_STATS="1")).stderr)


@pytest.mark.parametrize("shape", ["static", "object"])
def test_static_shapes_need_no_library_at_run_time(project: Path, shape: str) -> None:
    assert not any("hakmem" in name for name in needed_libraries(project / f"user_c_{shape}"))


def pkg_config(installed: Path, *options: str) -> list[str]:
    folder = next(installed.rglob("hakmem.pc")).parent
    env = environment(PKG_CONFIG_PATH=str(folder), PKG_CONFIG_LIBDIR=str(folder))
    return run_well(tool("pkg-config"), *options, "hakmem", env=env).split()


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    write_programs(tmp_path, "")
    return tmp_path


def test_pkg_config_version(installed: Path) -> None:
    assert f"hakmem {pkg_config(installed, '--modversion')[0]}\n" == run_well(ROOT / "hakmem", "--version")


@pytest.mark.parametrize("linker", ["-Wl,--no-as-needed", "-Wl,--as-needed"])
@pytest.mark.parametrize("program", ["user.c", "user.cc", "silent.c"])
def test_pkg_config_shared(
    installed: Path, library_folder: Path, sources: Path, program: str, linker: str
) -> None:
    compiler = tool("g++" if program.endswith("cc") else "gcc")
    flags = pkg_config(installed, "--cflags", "--libs")
    run_well(compiler, linker, sources / program, "-o", sources / "program", *flags)
    assert soname() in needed_libraries(sources / "program")
    if program != "silent.c":
        assert_is_served(sources / "program", LD_LIBRARY_PATH=str(library_folder))


@pytest.mark.parametrize("program", ["user.c", "user.cc", "silent.c"])
def test_pkg_config_fully_static(installed: Path, sources: Path, program: str) -> None:
    compiler = tool("g++" if program.endswith("cc") else "gcc")
    flags = pkg_config(installed, "--static", "--cflags", "--libs")
    run_well(compiler, "-static", sources / program, "-o", sources / "program", *flags)
    assert defines_malloc(sources / "program")
    if program != "silent.c":
        assert_is_served(sources / "program")


@pytest.mark.slow
def test_folders_may_be_given_as_absolute_paths(tmp_path: Path) -> None:
    """As some distributions do it: nothing is looked for below the prefix then."""
    library_folder, include = tmp_path / "elsewhere/lib", tmp_path / "headers"
    where = {"PREFIX": tmp_path / "prefix", "LIBDIR": library_folder, "INCLUDEDIR": include}
    folders = [f"-DCMAKE_INSTALL_{name}={path}" for name, path in where.items()]
    parts = ["-DHAK_TESTS=OFF", "-DHAK_BENCH=OFF", "-DHAK_TOOLS=OFF"]
    build_project(ROOT, *folders, *parts, build=tmp_path / "build")
    run_well("cmake", "--install", tmp_path / "build")
    sources = tmp_path / "sources"
    sources.mkdir()
    write_programs(sources, "find_package(hakmem 0.1 CONFIG REQUIRED)")
    built = build_project(sources, f"-Dhakmem_DIR={library_folder / 'cmake/hakmem'}")
    for shape in SHAPES:
        assert_is_served(built / f"user_c_{shape}")
    flags = pkg_config(library_folder, "--cflags", "--libs")
    run_well(tool("gcc"), sources / "user.c", "-o", sources / "program", *flags)
    assert_is_served(sources / "program", LD_LIBRARY_PATH=str(library_folder))


def test_single_object_by_hand(installed: Path, library_folder: Path, sources: Path) -> None:
    include = f"-I{installed / 'include'}"
    run_well(tool("gcc"), include, sources / "user.c", library_folder / "hakmem.o", "-o", sources / "program")
    assert_is_served(sources / "program")


def test_a_private_name_of_ours_may_be_a_program_s_own(library_folder: Path, tmp_path: Path) -> None:
    text = "int window = 7, os_message(void);\nint os_message(void) { return window; }\n"
    (tmp_path / "own.c").write_text(f"{text}int main(void) {{ return os_message() - 7; }}\n")
    archive = library_folder / "libhakmem.a"
    run_well(tool("gcc"), tmp_path / "own.c", archive, "-Wl,-u,malloc", "-o", tmp_path / "own")
    run_well(tmp_path / "own")


def test_the_installed_tree_names_no_directory_of_the_build(installed: Path) -> None:
    texts = [*installed.rglob("*.cmake"), *installed.rglob("*.pc"), *installed.rglob("*.h")]
    assert texts
    for path in texts:
        text = path.read_text()
        assert not any(f"{ROOT}/{folder}" in text for folder in ("build", "src", "include")), path
        assert str(installed) not in text, path


def test_the_wrapper_of_dlopen_is_installed(build: Build, library_folder: Path) -> None:
    """By itself, beside the library, it does what ./hakmem run --no-deepbind does."""
    libraries = f"{library_folder}/libhakmem.so {library_folder}/libhakmem-no-deepbind.so"
    program = build.directory / "tests/compat/deepbind"
    assert run_well(program, "give", "malloc", env=environment(LD_PRELOAD=libraries)) == "ok deepbind\n"


def test_the_header_stands_alone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "only.c").write_text("#include <hakmem/hakmem.h>\nint main(void) { return 0; }\n")
    (tmp_path / "only.cc").write_text((tmp_path / "only.c").read_text())
    include = f"-I{installed / 'include'}"
    strict = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    for standard in ("c99", "c11"):
        run_well(tool("gcc"), f"-std={standard}", *strict, include, tmp_path / "only.c")
    for standard in ("c++98", "c++20"):
        run_well(tool("g++"), f"-std={standard}", *strict, include, tmp_path / "only.cc")
    assert [path.name for path in (installed / "include").iterdir()] == ["hakmem"]
