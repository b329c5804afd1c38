"""One study from beginning to end: staged copies, peers, samples kept as they come, progress shown."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hakmem_lab.allocators.peers import Peer, PeerStore
from hakmem_lab.allocators.service import service_prove
from hakmem_lab.checkout import Checkout, path_here
from hakmem_lab.errors import LabError, RunInterruptedError
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.samples import SampleWriter, sample_writer
from hakmem_lab.measure.stage import Stage, staged


@dataclass(frozen=True)
class Study:
    checkout: Checkout
    stage: Stage
    store: PeerStore
    rng: random.Random
    progress: Progress
    samples: SampleWriter

    def peers(self, names: Iterable[str]) -> list[Peer]:
        """Each peer once, from its staged copy; a peer that is not available or does not serve ends the study
        before it begins."""
        staged = [self.stage.peer(self.store.obtain(name)) for name in dict.fromkeys(names)]
        for peer in staged:
            service_prove(self.stage, peer, cpus_allowed())
        return staged


def progress_make() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


@contextmanager
def study_open(checkout: Checkout, kind: str, seed: int) -> Iterator[Study]:
    """Samples go to bench_results/KIND/TIME/. Whatever ends it is told with where they are."""
    path: Path | None = None
    try:
        with staged(checkout) as stage:
            path = checkout.results_new(kind) / "samples.csv"
            with sample_writer(path) as samples, progress_make() as shown:
                yield Study(checkout, stage, PeerStore(checkout), random.Random(seed), shown, samples)
    except KeyboardInterrupt:
        raise RunInterruptedError(f"interrupted{_kept_text(path)}") from None
    except RunInterruptedError:
        raise
    except LabError as error:
        raise LabError(f"{error}{_kept_text(path)}") from error


def _kept_text(samples: Path | None) -> str:
    return f"; what was measured is in {path_here(samples)}" if samples and samples.exists() else ""
