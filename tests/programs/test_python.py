"""python3 by its own test suite, with PYTHONMALLOC=malloc: otherwise malloc sees only what is above 512 bytes."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from toolbox import cannot_run, packages_of, run
from trial import Side, Suite, Trial

QUICK = "test_dict test_list test_set test_json test_threading test_gc test_re test_deque test_zlib"
# Without asyncio and selectors: on a busy machine some of their tests come too late, with hakmem and without it.
LARGE = """
test_array test_ast test_base64 test_bigmem test_bisect test_buffer test_builtin test_bytes test_bz2
test_call test_class test_code test_codecs test_collections test_compile test_complex test_context test_contextlib
test_copy test_coroutines test_csv test_ctypes test_datetime test_dbm test_decimal test_defaultdict test_deque
test_descr test_dict test_difflib test_email test_enumerate test_exceptions test_fileio test_float test_fork1
test_format test_fstring test_functools test_gc test_generators test_genexps test_grammar test_gzip test_hashlib
test_heapq test_hmac test_html test_httplib test_import test_inspect test_int test_io test_iter test_itertools
test_json test_list test_logging test_long test_lzma test_marshal test_math test_memoryio test_memoryview test_mmap
test_multiprocessing_fork test_opcodes test_ordered_dict test_os test_pathlib test_peepholer test_pickle
test_pickletools test_poll test_posix test_queue test_random test_range test_re test_richcmp test_sched test_scope
test_select test_set test_shelve test_shutil test_signal test_slice test_socket test_socketserver
test_sort test_ssl test_struct test_subprocess test_super test_symtable test_sys test_syntax test_tarfile
test_tempfile test_thread test_threadedtempfile test_threading test_threading_local test_tokenize test_trace
test_traceback test_tracemalloc test_tuple test_types test_typing test_unicode test_unicodedata test_unittest
test_urllib test_uuid test_wait4 test_weakref test_weakset test_with test_xml_etree test_xml_etree_c test_zipfile
test_zlib
"""
# On virtual machines these wait for a peer on the host.
LEFT_OUT = "*VSOCK*"
FAILED_FILES = re.compile(r"^\d+ tests? failed:\n((?:    .*\n)+)", re.MULTILINE)


@pytest.fixture
def python(trial: Trial) -> str:
    """An interpreter that has its test suite: Debian's, or that of this process."""
    for path in (Path("/usr/bin/python3"), Path(sys.executable).resolve()):
        if path.exists() and run(path, "-c", "import test.test_dict, test.libregrtest").returncode == 0:
            return trial.program("python3", "--version", path=path)
    cannot_run(f"needs python3's test suite (on Debian: apt-get install {packages_of('python3-testsuite')})")
    raise AssertionError


def suite(side: Side, python: str, tests: str, *options: str) -> Suite:
    """Runs files of the suite; what failed, by file and by case. A file that crashes has no cases."""
    report = side.folder / "report.xml"
    output = side.run(
        *[python, "-m", "test", "--junit-xml", report, *options, *tests.split()],
        env={"PYTHONMALLOC": "malloc", "TMPDIR": str(side.folder)},
        statistics=False,
        statuses=(0, 2),
        timeout=3000,
    )
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {str(case.get("name")) for case in cases if {"failure", "error"} & {part.tag for part in case}}
    failed |= set(" ".join(FAILED_FILES.findall(output)).split())
    return Suite(len(cases), frozenset(failed))


def test_python_quick(trial: Trial, python: str) -> None:
    """Its own suite: dictionaries, lists, sets, JSON, threads, the collector, expressions"""
    result = trial.compare(lambda side: suite(side, python, QUICK))
    trial.note(result.told())
    assert result.ran > 1000


@pytest.mark.soak
def test_python_large(trial: Trial, python: str) -> None:
    """Its own suite: a large part of it"""
    result = trial.compare(
        lambda side: suite(side, python, LARGE, "-j3", "--timeout", "600", "--ignore", LEFT_OUT)
    )
    trial.note(result.told())
    assert result.ran > 10000
