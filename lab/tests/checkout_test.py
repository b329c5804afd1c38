from __future__ import annotations

from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.measure.samples import RowWriter
from hakmem_lab.measure.stage import staged
from hakmem_lab.studies.study import study_open


def test_runs_that_begin_in_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, tmp_path / "build")
    folders = [checkout.results_new("ab") for _ in range(12)]
    assert len(set(folders)) == 12
    assert all(folder.parent == checkout.results("ab") and folder.is_dir() for folder in folders)


@pytest.mark.parametrize("kept", ["bench_results", "bench_results/ab"])
def test_a_link_that_leads_nowhere_is_no_place_for_results(tmp_path: Path, kept: str) -> None:
    (tmp_path / kept).parent.mkdir(exist_ok=True)
    (tmp_path / kept).symlink_to("nowhere")
    with pytest.raises(LabError, match=f"{kept} is no folder, and results go there$"):
        Checkout(tmp_path, tmp_path / "build").results_new("ab")


def test_a_study_that_never_began_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = Checkout(tmp_path, tmp_path / "build").results_new("ab")
    RowWriter(folder / "samples.csv", ("one",)).close()
    assert not folder.exists()


@pytest.mark.parametrize("name", ["a b", "a:b"])
def test_a_checkout_that_cannot_be_preloaded_from_is_an_error(tmp_path: Path, name: str) -> None:
    checkout = Checkout(tmp_path / name, tmp_path / name / "build")
    with pytest.raises(LabError, match=r"its path holds a space or a colon$"), staged(checkout):
        pass
    assert not checkout.root.exists()


def test_a_study_that_cannot_copy_anything_aside_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / ".tools").touch()
    checkout = Checkout(tmp_path, tmp_path / "build")
    with pytest.raises(LabError, match=r"^cannot write into \.tools: "), study_open(checkout, "ab", 1):
        pass
    assert not checkout.results("ab").exists()
