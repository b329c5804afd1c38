from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from hakmem_lab.measure.samples import RowWriter
from hakmem_lab.reports.report import report_write
from lab_matrix import SOURCE


def test_names_that_are_not_utf_8_are_written_as_they_are(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    samples = tmp_path / "samples.csv"
    with closing(RowWriter(samples, ("task",))) as writer:
        writer.write((name,))
    report_write(tmp_path / "report.md", "Title", replace(SOURCE, command=name), [], [], samples)
    for file in ("samples.csv", "report.md", "report.csv"):
        assert b"caf\xe9" in (tmp_path / file).read_bytes()
