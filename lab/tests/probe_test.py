"""The probe's own parts, in this process: what it asks must be asked of every origin of a block."""

from __future__ import annotations

import os
import threading

import pytest
from hakmem_lab.allocators.probe import UnprovedError, blocks_try, fork_try, threads_try

PARENT = os.getpid()


def owned(_block: int) -> str:
    return "owned"


def owned_here(_block: int) -> str:
    if threading.current_thread() is not threading.main_thread():
        raise UnprovedError("not so: owned")
    return "owned"


def owned_by_parent(_block: int) -> str:
    if os.getpid() != PARENT:
        raise UnprovedError("not so: owned")
    return "owned"


def test_blocks_of_every_origin_are_asked_about() -> None:
    assert blocks_try(owned) == "owned"
    threads_try(owned)
    fork_try(owned)


def test_operator_new_must_be_the_peers_too() -> None:
    answers = iter(["owned", "somebody else's"])
    with pytest.raises(UnprovedError, match="operator new serves from the same heap"):
        blocks_try(lambda _block: next(answers))


def test_threads_must_be_served_too() -> None:
    with pytest.raises(UnprovedError, match="in a thread: not so: owned"):
        threads_try(owned_here)


def test_a_forked_child_must_be_served_too() -> None:
    with pytest.raises(UnprovedError, match="a forked child ended with 1"):
        fork_try(owned_by_parent)
