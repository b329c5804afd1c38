"""What a process keeps of the memory that it freed, and the thread that gives it back.

The programs are tests/footprint/*.c; each says what it catches. Most of their time they sleep, so those of
one test function run side by side; the first of its tests waits for all of them.
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from toolbox import Build, cannot_run, environment, machine_setting, run

pytestmark = pytest.mark.slow

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
TIMEOUT_SECONDS = 200

Result = CompletedProcess[str]


@dataclass(frozen=True)
class Case:
    """A program of tests/footprint, how it is called, and what is different around it."""

    name: str
    command: tuple[str, ...]
    option: tuple[str, str] | None = None
    refused: str | None = None  # a call that always fails when hakmem makes it
    without_thread: bool = False  # no purge thread can be had

    def variables(self, build: Build) -> dict[str, str | None]:
        result: dict[str, str | None] = {"EXPECT_HAKMEM": "1", "LD_PRELOAD": str(build.library)}
        if self.option is not None:
            result[self.option[0]] = self.option[1]
        if self.without_thread:
            result["PURGE_THREAD_REFUSED"] = "1"
        if self.refused is not None:
            faults = existing(build.directory / "tests/faults/libfail_calls.so")
            result["LD_PRELOAD"] = f"{faults} {build.library}"
            result |= {"FAIL_CALL": self.refused, "FAIL_FOR": "ever", "FAIL_ONLY": "hakmem"}
            result["FAIL_REPORT"] = "1"
        return result


def existing(path: Path) -> Path:
    if not path.is_file():
        cannot_run(f"{path} was not built")
    return path


def start(build: Build, case: Case) -> Result:
    program = existing(build.directory / "tests/footprint" / case.command[0])
    variables = environment(**case.variables(build))
    return run(program, *case.command[1:], env=variables, timeout=TIMEOUT_SECONDS)


def verify(case: Case, result: Result) -> None:
    said = f"{case}\n{result.stdout}{result.stderr}"
    if result.returncode == 77:
        cannot_run(result.stdout)
    assert result.returncode == 0, said
    assert "hakmem: " not in result.stderr, said  # an option that is none, or another complaint
    if case.refused is not None:
        # Otherwise the call was not made, or not where it could be made to fail, and nothing was tested.
        assert re.search(r"failed [1-9]", result.stderr), said
    print(result.stdout, end="")


def memory_gibibytes() -> int:
    """What the machine can spare."""
    found = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
    assert found is not None
    return int(found[1]) >> 20


@pytest.fixture(scope="module")
def results() -> dict[Case, Future[Result]]:
    return {}


@pytest.fixture
def result(build: Build, request: pytest.FixtureRequest, results: dict[Case, Future[Result]]) -> Result:
    """The result of the test's case, which ran together with all chosen cases of the same function: as many
    at once as there are processors, or, marked as mostly asleep, as the memory allows."""
    function = request.node.originalname
    case = request.node.callspec.params["case"]
    if case not in results:
        items = [item for item in request.session.items if getattr(item, "originalname", None) == function]
        at_once = len(os.sched_getaffinity(0))
        if function in ASLEEP:
            at_once = max(at_once, memory_gibibytes() * 3 // 4)
        with ThreadPoolExecutor(at_once) as pool:
            for item in items:
                assert isinstance(item, pytest.Function)
                other = item.callspec.params["case"]
                results[other] = pool.submit(start, build, other)
    return results[case].result()


def cases(*given: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", given, ids=lambda case: case.name)


def each_of(program: str, *names: str) -> list[Case]:
    """A process for each test of a program: what one leaves behind is not the next one's concern."""
    return [Case(name, (program, name)) for name in names]


def changed(
    given: list[Case],
    suffix: str,
    *,
    option: tuple[str, str] | None = None,
    refused: str | None = None,
    without_thread: bool = False,
) -> list[Case]:
    return [
        Case(f"{case.name}-{suffix}", case.command, option, refused, without_thread or case.without_thread)
        for case in given
    ]


ASLEEP = {"test_idle_process_gives_back", "test_purge_thread"}
NO_THREAD = ("HAKMEM_PURGE_THREAD", "off")
NO_THREAD_IN_LIST = ("HAKMEM_CONF", "purge_thread:off")


@cases(
    Case("2_gib", ("give_back", "2048", "1", "--thp", "madvise")),
    Case("1_gib_in_large_blocks", ("release_large", "1024")),
    Case("madvise", ("give_back", "512", "2", "--thp", "madvise")),
    Case("never", ("give_back", "512", "3", "--thp", "never")),
    Case("many_small_blocks", ("give_back", "512", "4", "--sizes", "log")),
    Case("operations", ("give_back", "512", "5", "--then-operations", "1000"), NO_THREAD),
    Case(
        "operations_no_thread", ("give_back", "512", "6", "--then-operations", "1000"), None, "pthread_create"
    ),
)
def test_idle_process_gives_back(case: Case, result: Result) -> None:
    verify(case, result)


@pytest.fixture
def huge_pages_always() -> Iterator[None]:
    """The machine hands out huge pages unasked."""
    with machine_setting(HUGE_PAGES, "always"):
        yield


@pytest.mark.alone
@pytest.mark.usefixtures("huge_pages_always")
def test_idle_process_gives_back_among_huge_pages(build: Build) -> None:
    """Longer, since khugepaged may fill the holes again: it comes by every ten seconds."""
    case = Case("always", ("give_back", "512", "7", "--thp", "always", "--idle", "15"))
    verify(case, start(build, case))


LIFE = each_of(
    "purge_thread",
    "never_with_little_dirty",
    "never_with_20_mib_dirty",
    "exists_after_64_mib",
    "exists_after_64_mib_of_small_blocks",
    "is_gone_when_nothing_is_left",
    "a_threads_only_free_is_seen",
    "a_locked_page_keeps_little",
    "blocks_all_signals_that_are_sent",
    "signals_wait_for_the_program",
    "handlers_run_in_the_program",
    "leaves_the_freeing_thread_alone",
    "works_while_the_program_works",
    "unshare_works_once_it_is_gone",
)
ENDS = each_of(
    "purge_ends",
    "fork_while_it_lives",
    "exit_while_it_lives",
    "exit_at_once_while_it_lives",
    "exec_while_it_lives",
    "exit_of_a_thread_while_it_lives",
    "main_ends_by_pthread_exit",
    "a_detached_thread_ends_last",
    "the_last_thread_ends_with_much",
    "threads_free_and_end",
)
LAST = each_of(
    "purge_ends",
    "main_ends_by_pthread_exit",
    "a_detached_thread_ends_last",
    "the_last_thread_ends_with_much",
)
WITHOUT_THREAD = each_of("purge_thread", "never_when_refused", "works_while_the_program_works") + each_of(
    "purge_ends", "fork_while_it_lives", "threads_free_and_end"
)


@cases(
    *LIFE,
    *ENDS,
    *changed(LAST, "with_patience", option=("HAKMEM_DECAY", "1min")),
    *changed(WITHOUT_THREAD, "by_option", option=NO_THREAD, without_thread=True),
    *changed(WITHOUT_THREAD[:1], "by_list", option=NO_THREAD_IN_LIST, without_thread=True),
    *changed(WITHOUT_THREAD, "by_the_system", refused="pthread_create", without_thread=True),
)
def test_purge_thread(case: Case, result: Result) -> None:
    verify(case, result)


GROWTH = each_of(
    "realloc_growth",
    "grows_by_half",
    "grows_by_64_kib",
    "grows_by_half_with_neighbours",
    "grows_by_4_mib_with_neighbours",
    "grows_by_1_mib_with_small_neighbours",
    "shrinks_at_once",
    "shrinks_in_steps",
    "grows_from_an_aligned_block",
    "stays_when_growth_is_refused",
    "threads_resize_large_blocks",
)
# Those that cannot but move large blocks.
MOVES = each_of(
    "realloc_growth",
    "grows_by_half_with_neighbours",
    "grows_by_4_mib_with_neighbours",
    "grows_by_1_mib_with_small_neighbours",
    "threads_resize_large_blocks",
)


@cases(*GROWTH, *changed(MOVES, "without_mremap", refused="mremap"))
def test_realloc(case: Case, result: Result) -> None:
    verify(case, result)


@cases(
    Case("1", ("calloc_zero", "5", "1")),
    Case("quick_decay", ("calloc_zero", "5", "2"), ("HAKMEM_DECAY", "10ms")),
    Case("no_thread", ("calloc_zero", "5", "3"), NO_THREAD),
    Case("huge_pages", ("calloc_zero", "5", "4"), ("HAKMEM_HUGE_PAGES", "always")),
    # Nothing was given back, though it was tried: what is not returned is not zero.
    Case("madvise_refused", ("calloc_zero", "5", "5"), ("HAKMEM_DECAY", "10ms"), "madvise"),
    Case("mremap_refused", ("calloc_zero", "5", "6"), None, "mremap"),
)
def test_calloc_gives_zeros(case: Case, result: Result) -> None:
    verify(case, result)


COLLECT = each_of(
    "collect",
    "before_the_first_block",
    "collect_returns_at_once",
    "collect_returns_small_blocks_at_once",
    "trim_returns_at_once",
    "the_second_call_finds_nothing",
    "collectors_beside_workers",
)


@cases(*COLLECT, *changed(COLLECT[1:5], "without_thread", option=NO_THREAD))
def test_collect(case: Case, result: Result) -> None:
    verify(case, result)


def test_many_threads_with_few_blocks_each(build: Build) -> None:
    verify(case := Case("many_threads", ("many_threads", "1000")), start(build, case))


def test_mappings_stay_few(build: Build) -> None:
    case = Case("mappings", ("mappings", "10", "1024"))
    verify(case, start(build, case))


def test_mappings_stay_few_with_much_live(build: Build) -> None:
    if memory_gibibytes() < 6:
        cannot_run("needs 6 GiB of free memory")
    case = Case("4 GiB", ("mappings", "6", "4096"))
    verify(case, start(build, case))


def test_soak(build: Build) -> None:
    case = Case("soak", ("soak_footprint", "20"))
    verify(case, start(build, case))
