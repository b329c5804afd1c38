"""Which tests may run side by side: all, except beside one marked `alone`. And what they start can be interrupted."""

import fcntl
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

LOCKS = Path(__file__).resolve().parent / ".tools"

# A shell has what it starts in the background ignore it, and children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Holds the machine, with its fixtures' time too: shared, or for this test alone. Whoever waits for it holds
    the door, so that tests which share it cannot follow each other for ever past one that wants it alone."""
    alone = item.get_closest_marker("alone") is not None
    LOCKS.mkdir(exist_ok=True)
    with (LOCKS / "tests.door").open("w") as door, (LOCKS / "tests.machine").open("w") as machine:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        return (yield)
