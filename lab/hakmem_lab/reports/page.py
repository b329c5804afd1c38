"""A page: sentences, pictures and tables, as self-contained HTML and as Markdown with its pictures beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jinja2

from hakmem_lab.files import text_write
from hakmem_lab.grid import Grid
from hakmem_lab.measure.provenance import Provenance
from hakmem_lab.measure.store import SampleStore
from hakmem_lab.reports.drawing import Picture
from hakmem_lab.reports.report import markdown_report

TEMPLATE = "page.html.j2"
PAGE_FILE = "report.html"
"""In the folder of a run."""

BAD = (
    "behind",
    "lost",
    "missed",
    "failed",
    "void",
    "larger",
    "crashed",
    "hung",
    "dearer",
    "slower",
    "fails now",
)
GOOD = ("ahead", "won", "met", "smaller", "passed", "cheaper", "faster", "runs again")


@dataclass(frozen=True)
class Page:
    title: str
    source: Provenance
    lines: Sequence[str]
    pictures: Sequence[Picture]
    grids: Sequence[Grid]
    reading: Sequence[str]
    """How to read it."""
    samples: str
    """Where the raw samples are, relative to the page; empty if there are none."""

    def html(self) -> str:
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True
        )
        environment.filters["mood"] = mood
        return environment.get_template(TEMPLATE).render(
            title=self.title,
            lines=self.lines,
            pictures=[
                {"title": one.title, "caption": one.caption, "svg": svg_inline(one)} for one in self.pictures
            ],
            grids=[grid for grid in self.grids if grid.rows],
            reading=[line.replace("*", "") for line in self.reading],
            provenance=[(what, value.strip("`")) for what, value in self.source.rows()],
            samples=self.samples,
        )

    def write(self, path: Path) -> None:
        """Markdown at PATH; the pictures and the same page as HTML beside it."""
        shown = []
        for picture in self.pictures:
            beside = path.with_name(f"{path.stem}-{picture.name}.svg")
            text_write(beside, picture.svg)
            shown.append(f"![{picture.title}]({beside.name})\n\n{picture.caption}")
        text_write(path.with_suffix(".html"), self.html())
        notes = [*self.lines, *shown, *self.reading]
        text_write(path, markdown_report(self.title, self.source, notes, self.grids, self.samples))

    def write_run(self, folder: Path, store: SampleStore, report: Path | None) -> Path:
        """Into the FOLDER of its run, whose path there is the result, and to REPORT if that was requested."""
        kept = folder / PAGE_FILE
        text_write(kept, (self if store.folder.exists() else replace(self, samples="")).html())
        if report is not None:
            self.write_with(store, report)
        return kept

    def write_with(self, store: SampleStore, path: Path) -> None:
        """Also writes the samples, if there are any, beside it."""
        samples = path.with_suffix(".parquet")
        replace(self, samples=samples.name if store.export(samples) else "").write(path)


def svg_inline(picture: Picture) -> str:
    """Without the XML declaration, and with names that no other picture on the page has."""
    text = picture.svg
    return re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{picture.name}-", text[text.index("<svg") :])


def mood(text: str) -> str:
    """The class of a table's entry."""
    word = text.partition(":")[0]
    if word in BAD or text.endswith(" -"):
        return "bad"
    return "good" if word in GOOD or text.endswith(" +") else ""
