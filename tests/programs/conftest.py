"""Programs that people run, on hakmem: fixtures, the long tests, and the table that comes out.

Each file is a program or a family of programs; adding one is adding a file, and its package to
tests/system/tools.txt. trial.py has what a test is made of.
"""

import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from table import table_write
from toolbox import Build
from trial import Row, Trial

HERE = Path(__file__).parent
ROWS = pytest.StashKey[list[Row]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="also the tests of programs that take minutes")
    parser.addoption("--report", type=Path, help="write the table of programs here")


def pytest_configure(config: pytest.Config) -> None:
    # In the background a shell has it ignored, and what is started here would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[ROWS] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All of them are slow; those marked soak take part only when asked for."""
    left_out = []
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker("slow")
        if item.get_closest_marker("soak") and not config.getoption("--soak"):
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def trial(
    request: pytest.FixtureRequest, build: Build, record_property: Callable[[str, object], None]
) -> Iterator[Trial]:
    row = Row(work=" ".join((request.function.__doc__ or "").split()).rstrip("."))
    assert row.work, "the docstring is what the table says of the test"
    trial = Trial(build, row)
    yield trial
    record_property("peak_kib", trial.peak_kib)
    if row.program and row.result:
        request.config.stash[ROWS].append(row)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails after both sides agreed has failed all the same."""
    report = yield
    trial = getattr(item, "funcargs", {}).get("trial")
    if call.when == "call" and report.failed and isinstance(trial, Trial) and trial.row.result == "passed":
        trial.row.result = "failed"
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--report")
    rows = session.config.stash[ROWS]
    if path is not None and rows:
        table_write(path, rows)
