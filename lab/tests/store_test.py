from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from hakmem_lab.errors import LabError
from hakmem_lab.measure import store as store_module
from hakmem_lab.measure.store import Sample, SampleStore, provenance_columns
from lab_matrix import SOURCE, observed_make, row_make, sample_make

ROW = row_make("cell")
COLUMNS = provenance_columns("run", SOURCE)


def store_at(folder: Path) -> SampleStore:
    return SampleStore(folder / "raw", COLUMNS)


def samples_some(count: int = 3) -> list[Sample]:
    return [sample_make(ROW, slot, arm) for slot in range(count) for arm in ("hakmem", "glibc")]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    crashed = replace(sample_make(ROW, 9, "glibc"), outcome="crashed: signal 11", ops=None, seconds=None)
    samples = [*samples_some(), observed_make(ROW, "hakmem"), crashed]
    store.append(samples)
    assert store.load() == samples
    store.compact()
    assert sorted(store.load(), key=repr) == sorted(samples, key=repr)
    assert not list((tmp_path / "raw").glob("*.jsonl"))


def test_a_run_that_began_before_a_figure_was_kept_is_read_without(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    samples = [replace(one, touch_us=2.5) for one in samples_some()]
    store.append(samples)
    store.compact()
    (part,) = (tmp_path / "raw").glob("*.parquet")
    duckdb.execute(f"COPY (SELECT * EXCLUDE (touch_us) FROM '{part}') TO '{part}.old' (FORMAT parquet)")
    Path(f"{part}.old").replace(part)
    assert store.load() == [replace(one, touch_us=None) for one in samples]
    later = replace(sample_make(ROW, 9, "glibc"), touch_us=3.5)
    store.append([later])
    assert later in store.load()


def test_parts_and_the_journal_are_one(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    for sample in samples_some():
        store.append([sample])
        store.compact()
    store.append([observed_make(ROW, "hakmem")])
    assert len(list((tmp_path / "raw").glob("*.parquet"))) == 6
    assert len(store.load()) == 7


def test_a_part_that_was_removed_is_not_written_over(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    for sample in samples_some()[:3]:
        store.append([sample])
        store.compact()
    (tmp_path / "raw/0001.parquet").unlink()
    store.append(samples_some()[3:4])
    store.compact()
    assert sorted(store.load(), key=repr) == sorted(samples_some()[1:4], key=repr)


def test_the_journal_goes_when_its_rows_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's name and what it holds are written at different times."""
    synced: list[str] = []

    def seen(path: Path) -> None:
        assert (tmp_path / "raw/journal.jsonl").exists()
        synced.append(path.name)

    monkeypatch.setattr(store_module, "disk_sync", seen)
    store = store_at(tmp_path)
    store.append(samples_some())
    store.compact()
    assert synced == ["journal.jsonl", "raw", "0001.tmp", "raw"]


def test_a_run_that_was_killed_while_it_wrote_loses_only_the_cut_row(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.append(samples_some())
    journal = next((tmp_path / "raw").glob("*.jsonl"))
    journal.write_text(journal.read_text()[:-200])
    assert store.load() == samples_some()[:-1]
    store.compact()
    store.append(samples_some()[-1:])
    assert sorted(store.load(), key=repr) == sorted(samples_some(), key=repr)


def test_a_run_that_was_killed_between_its_files_has_no_row_twice(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.append(samples_some())
    journal = next((tmp_path / "raw").glob("*.jsonl"))
    kept = journal.read_text()
    store.compact()
    journal.write_text(kept)
    assert len(store.load()) == 6
    store.export(tmp_path / "all.parquet")
    counted = duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/all.parquet'").fetchall()
    assert counted == [(6,)]


def test_a_round_that_was_measured_again_is_kept_once_everywhere(tmp_path: Path) -> None:
    """It was cut off, and what was left of it already in a part."""
    store = store_at(tmp_path)
    whole, cut, again = samples_some(1), samples_some(2)[2:], samples_some(2)[2:]
    again = [replace(one, seconds=0.5) for one in again]
    store.append([*whole, cut[0]])
    store.compact()
    store.append(again)
    for _ in ("in the journal", "in a part"):
        assert store.load() == [*whole, *again]
        assert store.export(tmp_path / "all.parquet")
        exported = duckdb.sql(
            f"SELECT slot, arm, seconds FROM '{tmp_path}/all.parquet' ORDER BY ALL"
        ).fetchall()
        assert exported == sorted((one.slot, one.arm, one.seconds) for one in store.load())
        store.compact()
    kept = duckdb.sql(f"SELECT slot, arm, seconds FROM '{tmp_path}/raw/*.parquet' ORDER BY ALL").fetchall()
    assert kept == exported
    assert not list(tmp_path.glob("**/*.tmp"))


@pytest.mark.parametrize("journal", [None, "", '{"kind": "timed", "task": "ce'])
def test_without_samples_there_is_no_file(tmp_path: Path, journal: str | None) -> None:
    store = store_at(tmp_path)
    if journal is not None:
        store.folder.mkdir()
        (store.folder / "journal.jsonl").write_text(journal)
    assert store.load() == []
    assert not store.export(tmp_path / "all.parquet")
    store.compact()
    assert not store.export(tmp_path / "all.parquet")
    assert not list(tmp_path.glob("all.*"))


def test_every_row_says_where_it_comes_from(tmp_path: Path) -> None:
    """The query of lab/README.md, over all runs."""
    for run in ("one", "two"):
        store = SampleStore(tmp_path / run / "raw", COLUMNS | {"run": run})
        store.append(samples_some())
        store.compact()
    rows = duckdb.sql(
        "SELECT run, commit, build_id, kernel, thp, cpu, date, command, median(ops / seconds)"
        f" FROM '{tmp_path}/*/raw/*.parquet' WHERE kind = 'timed' AND allocator = 'glibc' GROUP BY ALL ORDER BY run"
    ).fetchall()
    facts = ("abc", "id", "Linux 6", "madvise", "a processor", SOURCE.date, SOURCE.command, 4e6)
    assert rows == [("one", *facts), ("two", *facts)]


def test_a_full_disk_is_one_line_and_keeps_what_was_written(tmp_path: Path) -> None:
    """/dev/full takes no byte."""
    store = store_at(tmp_path)
    store.append(samples_some())
    store.compact()
    (tmp_path / "raw" / "journal.jsonl").symlink_to("/dev/full")
    with pytest.raises(LabError, match="cannot write samples: No space left on device"):
        store.append(samples_some(1))
    (tmp_path / "raw" / "journal.jsonl").unlink()
    assert len(store.load()) == 6


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("")
    with pytest.raises(LabError, match="cannot write samples"):
        store_at(tmp_path).append(samples_some())
