"""Processes of which the kernel shows little, or only in the folders of their threads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest
from hakmem_lab.measure.tree import children_of, descendants_of, rss_kib_of
from lab_processes import HEAD, running
from toolbox import compile_c


def refuse(_path: Path, **_options: str) -> NoReturn:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("reads", ["iterdir", "read_text"])
def test_what_is_hidden_is_passed_over(reads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under hidepid=1, of a child that runs as another user."""
    monkeypatch.setattr(Path, reads, refuse)
    assert descendants_of(os.getpid()) == children_of(os.getpid()) == []
    assert reads == "iterdir" or rss_kib_of(os.getpid()) == 0


def test_the_memory_of_one_whose_main_thread_has_ended(tmp_path: Path) -> None:
    source = (
        HEAD
        + """
static void *stay(void *main_thread) {
    pthread_join(*(pthread_t *)main_thread, NULL);
    static void *volatile block;
    block = filled(8 << 20);
    wait_for_end();
    return NULL;
}
int main(void) {
    static pthread_t thread, self;
    self = pthread_self();
    pthread_create(&thread, NULL, stay, &self);
    pthread_exit(NULL);
}
"""
    )
    program = compile_c(tmp_path / "left", source, "-pthread")
    with running([program], dict(os.environ)) as pid:
        assert rss_kib_of(pid) > 8 << 10
