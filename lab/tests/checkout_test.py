from __future__ import annotations

from pathlib import Path

from hakmem_lab.checkout import Checkout
from hakmem_lab.measure.samples import RowWriter


def test_runs_that_begin_in_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, tmp_path / "build")
    folders = [checkout.results_new("ab") for _ in range(12)]
    assert len(set(folders)) == 12
    assert all(folder.parent == checkout.results("ab") and folder.is_dir() for folder in folders)


def test_a_study_that_never_began_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = Checkout(tmp_path, tmp_path / "build").results_new("ab")
    RowWriter(folder / "samples.csv", ("one",)).close()
    assert not folder.exists()
