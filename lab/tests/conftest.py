"""The tests of the laboratory: the package beside them, and the programs of a build."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hakmem_lab.checkout import RESULTS_VARIABLE, Checkout
from hakmem_lab.studies.bench import Kept
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT / "lab" / "tests") not in sys.path:
    sys.path.insert(0, str(ROOT / "lab" / "tests"))

# No test finds another's runs, and nobody takes them for what was measured.
(ROOT / ".tools").mkdir(exist_ok=True)
KEPT = TemporaryDirectory(dir=ROOT / ".tools", prefix="lab-tests-")
atexit.register(KEPT.cleanup)
os.environ[RESULTS_VARIABLE] = f"{KEPT.name}/bench_results"

# The same examples everywhere, and nothing left behind beside the sources.
set_hypothesis_home_dir(ROOT / ".tools" / "hypothesis")
settings.register_profile("checkout", derandomize=True, database=None, deadline=None)
settings.load_profile("checkout")


@pytest.fixture(scope="session")
def build() -> Path:
    """A build directory with bench/ in it: HAKMEM_BUILD_DIR, or build/."""
    folder = Path(os.environ.get("HAKMEM_BUILD_DIR", ROOT / "build"))
    if not (folder / "bench" / "random_mixed").is_file():
        pytest.skip("the workloads are not built: ./hakmem build")
    return folder


@pytest.fixture
def served(build: Path) -> Path:
    """One with the library, too."""
    if not (build / "libhakmem.so").is_file():
        pytest.skip("libhakmem.so is not built: ./hakmem build")
    return build


@pytest.fixture
def checkout(served: Path) -> Checkout:
    return Checkout.find(served)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """A run of the matrix that was made up: a lost row, a won one, one in which a peer crashed, and the control."""
    from lab_matrix import kept_make  # found by the path above

    return kept_make(tmp_path / "run")
