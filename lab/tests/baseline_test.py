"""`hakmem baseline`: the gate, who is suspected, and a planted loss that it must find."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.cli import app
from hakmem_lab.commands import baseline as command
from hakmem_lab.errors import LabError
from hakmem_lab.reports.baseline import gates_grid, loss_lines
from hakmem_lab.studies.baseline import (
    CELLS_COUNTED,
    Baseline,
    Counts,
    Entry,
    Gate,
    Loss,
    baseline_path,
    baseline_read,
    cells_counted,
    compiler_name,
    entries_count,
    files_behind,
    files_of,
    function_name,
    functions_count,
    gates,
    losses,
    names_defined,
    suspects,
)
from hakmem_lab.studies.callgrind import Call, Place, Profile
from hakmem_lab.studies.planted import (
    Planted,
    check_finding,
    planted_build,
    planted_read,
    where_finding,
)
from hakmem_lab.studies.where import FunctionCost, Where, where_diff
from lab_command import lab

ROOT = Path(__file__).resolve().parents[2]

COUNTS = Counts(
    instructions=40.0,
    faults=1000,
    peak_rss_kib=8000,
    entries={"malloc": Entry(1.0, 18.0), "free": Entry(1.0, 22.0)},
    functions={"malloc": 17.0, "free": 21.0, "slab_take": 2.0},
)


def baseline(row: Counts = COUNTS) -> Baseline:
    return Baseline("abc", "today", "cc", "Linux", "a processor", "madvise", "glibc", "fixed", {"mix": row})


def gate_of(what: str, now: Counts, thp: str = "madvise", addresses: str = "fixed") -> Gate:
    here = replace(baseline(now), thp=thp, addresses=addresses)
    return next(gate for gate in gates(baseline(), here) if gate.what == what)


# ---- the gate -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instructions", "state"),
    [(40.0, "met"), (40.19, "met"), (40.21, "missed"), (42.0, "missed"), (39.81, "met"), (39.7, "better")],
)
def test_half_a_per_cent_of_instructions_is_lost(instructions: float, state: str) -> None:
    assert gate_of("instructions", replace(COUNTS, instructions=instructions)).state == state


@pytest.mark.parametrize(("faults", "state"), [(1020, "met"), (1021, "missed"), (979, "better")])
def test_faults_have_their_tolerance(faults: int, state: str) -> None:
    assert gate_of("page faults", replace(COUNTS, faults=faults)).state == state


@pytest.mark.parametrize(("kib", "state"), [(8160, "met"), (8200, "missed")])
def test_memory_has_its_tolerance(kib: int, state: str) -> None:
    assert gate_of("peak RSS, KiB", replace(COUNTS, peak_rss_kib=kib)).state == state


def test_small_figures_are_not_lost_by_one() -> None:
    few = baseline(replace(COUNTS, faults=10))
    found = gates(few, baseline(replace(COUNTS, faults=14)))
    assert next(gate.state for gate in found if gate.what == "page faults") == "met"


def test_other_huge_pages_leave_faults_and_memory_open_and_say_so() -> None:
    worse = replace(COUNTS, faults=9000, peak_rss_kib=90000, instructions=50.0)
    assert gate_of("page faults", worse, "always").state.startswith("open: huge pages are always here")
    assert gate_of("peak RSS, KiB", worse, "always").state.startswith("open: ")
    assert gate_of("instructions", worse, "always").state == "missed"


def test_random_addresses_leave_memory_open_and_say_so() -> None:
    worse = replace(COUNTS, faults=9000, peak_rss_kib=90000)
    state = gate_of("peak RSS, KiB", worse, addresses="random").state
    assert state == "open: addresses are random here and were fixed"
    assert gate_of("page faults", worse, addresses="random").state == "missed"


def test_a_baseline_of_other_workloads_is_refused() -> None:
    with pytest.raises(LabError, match=r"of other workloads \(mix, other\): save it anew"):
        gates(baseline(), replace(baseline(), rows={"other": COUNTS}))


def test_what_lost_is_told_by_entry_point_and_function() -> None:
    now = replace(
        COUNTS,
        instructions=44.0,
        entries={"malloc": Entry(1.0, 18.0), "free": Entry(1.0, 26.0), "calloc": Entry(0.1, 50.0)},
        functions={"malloc": 17.0, "free": 25.0, "slab_take": 1.0},
    )
    found = gates(baseline(), baseline(now))
    (loss,) = losses(baseline(), {"mix": now}, found)
    assert loss.names == ("free",)
    lines = loss_lines([loss])
    assert "mix: free: 22.0 instructions a call before, 26.0 now" in lines
    assert "mix: calloc is called now: 50.0 instructions a call" in lines
    assert "mix: in free: 21.00 before, 25.00 now for one operation" in lines
    assert gates_grid(found).rows[0][2] == "missed"


def test_nothing_lost_is_nothing_told() -> None:
    assert losses(baseline(), {"mix": COUNTS}, gates(baseline(), baseline())) == []


# ---- counting -----------------------------------------------------------------------------------------------


def test_only_the_librarys_own_code_is_counted_and_only_the_difference(build: Path) -> None:
    library = build / "libhakmem.so"
    if not library.is_file():
        pytest.skip("libhakmem.so is not built: ./hakmem build")
    short, long = Profile(), Profile()
    for profile, times in ((short, 1), (long, 2)):
        profile.costs[Place(str(library), "free", "", 0, 0)] = 100 + 21 * 10 * times
        profile.costs[Place(str(library), "refill.part.0", "", 0, 0)] = 30 * times
        profile.costs[Place("/libc.so", "memset", "", 0, 0)] = 1000 * times
        entered = Call("/program", str(library), "hak_free")
        inside = Call(str(library), str(library), "refill")
        profile.calls[entered], profile.inclusive[entered] = 10 * times, 240 * times
        profile.calls[inside], profile.inclusive[inside] = times, 30 * times
    assert functions_count(short, long, library, 10) == {"free": 21.0, "refill": 3.0}
    assert entries_count(short, long, library, 10) == {"free": Entry(1.0, 24.0)}


@pytest.mark.parametrize(
    ("name", "plain"),
    [("refill.part.0", "refill"), ("free'2", "free"), ("_ZdlPv", "_ZdlPv"), (".plt", ".plt")],
)
def test_a_functions_name_is_without_what_is_appended(name: str, plain: str) -> None:
    assert function_name(name) == plain


@pytest.mark.parametrize(
    ("comment", "name"),
    [
        ("GCC: (Debian 12.2.0-14+deb12u1) 12.2.0", "gcc-12"),
        ("Debian clang version 14.0.6, GCC: (Debian) 12.2.0", "clang-14"),
    ],
)
def test_a_baseline_is_of_a_compiler(comment: str, name: str) -> None:
    assert compiler_name(comment) == name


def test_an_unknown_compiler_is_an_error() -> None:
    with pytest.raises(LabError, match="does not say which compiler"):
        compiler_name("tcc")


def test_every_counted_cell_is_there_and_has_one_thread() -> None:
    assert [cell.name for cell in cells_counted()] == list(CELLS_COUNTED)
    assert {cell.threads for cell in cells_counted()} == {1}


def test_a_baseline_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(baseline().text())
    assert baseline_read(path) == baseline()
    path.write_text('{"rows": 3}')
    with pytest.raises(LabError, match=r"some\.json is no baseline"):
        baseline_read(path)
    with pytest.raises(LabError, match=r"there is no baseline none\.json: \./hakmem baseline save makes one"):
        baseline_read(tmp_path / "none.json")


# ---- the command, without counting or timing ----------------------------------------------------------------


def check_run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, before: Baseline, now: Baseline | None, *options: str
) -> object:
    """Its status; of the times only the failure. Without NOW nothing may be counted."""

    def counting(_: Checkout) -> Baseline:
        assert now is not None, "it counted"
        return now

    def failing(*_: object) -> str:
        raise LabError("cannot be timed")

    path = folder / "some.json"
    path.write_text(before.text())
    monkeypatch.setattr(Checkout, "find", lambda _: Checkout(ROOT, folder))
    monkeypatch.setattr(command, "baseline_path", lambda _: path)
    monkeypatch.setattr(command, "counted", counting)
    monkeypatch.setattr(command, "_time_ask", failing)
    return app(["baseline", "check", "--build", str(folder), *options], standalone_mode=False)


@pytest.mark.parametrize(
    ("commit", "options", "said"),
    [
        ("HEAD", ["--budget", "soon"], "--budget is a time"),
        ("HEAD", ["--margin", "3"], "--margin is a share"),
        ("HEAD with changes", ["--time"], "the baseline is of 'HEAD with changes': only a commit"),
        ("nosuch", ["--time"], "'nosuch' is neither a preset nor a commit"),
    ],
)
def test_what_cannot_be_timed_is_said_before_anything_is_counted(
    commit: str, options: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(LabError, match=f"^{said}"):
        check_run(monkeypatch, tmp_path, replace(baseline(), commit=commit), None, *options)


@pytest.mark.parametrize("lost", [False, True])
def test_times_that_fail_take_no_loss_away(
    lost: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = replace(baseline(), commit="HEAD")
    now = baseline(replace(COUNTS, instructions=44.0)) if lost else before
    if lost:
        assert check_run(monkeypatch, tmp_path, before, now, "--time") == 1
    else:
        with pytest.raises(LabError, match=r"^cannot be timed$"):
            check_run(monkeypatch, tmp_path, before, now, "--time")
    told = capsys.readouterr()
    kept = "2 figures kept, 1 lost" if lost else "3 figures kept, 0 lost"
    assert told.out.splitlines()[-1] == f"{kept} since HEAD"
    assert told.err == ("hakmem: cannot be timed\n" if lost else "")


# ---- who did it ---------------------------------------------------------------------------------------------


def test_definitions_are_found_as_the_house_writes_them() -> None:
    text = (
        "/* f(x) */\n#define G(x) x\nHAK_NOINLINE void *alloc(size_t n) {\n    call(n);\n}\n"
        "static int one(int a) { return two(a); }\nvoid declared(int);\nint table[] = {entry(1)};\n"
        "HAK_EXPORT int long_one(int a,\n                        int b) {\n"
    )
    assert names_defined(text) >= {"alloc", "one", "long_one"}
    assert not names_defined(text) & {"f", "G", "call", "two", "declared", "entry"}


def test_functions_lead_to_their_files_and_what_these_include() -> None:
    sources = ROOT / "src"
    assert files_of(sources, ["slab_take"]) == [sources / "slab/slab.c"]
    assert sources / "api/malloc.c" in files_of(sources, ["malloc"])
    assert sources / "api/cxx.c" in files_of(sources, ["_ZdlPv"])
    behind = files_behind(sources, ["hak_free"])
    assert sources / "heap/front.h" in behind
    assert sources / "region/window.h" in behind
    assert sources / "slab/holes.c" not in behind


def repository(folder: Path) -> Checkout:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        done = subprocess.run(
            ["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    (folder / "src/heap").mkdir(parents=True)
    (folder / "src/slab").mkdir()
    git("init", "--quiet")
    for name, text in (
        ("src/heap/front.h", "int a;\n"),
        ("src/heap/free.c", '#include "heap/front.h"\nint free_it(void) {\n    return 0;\n}\n'),
        ("src/slab/slab.c", "int other(void) {\n    return 0;\n}\n"),
    ):
        (folder / name).write_text(text)
    for name, message in (
        (None, "base"),
        ("src/slab/slab.c", "touches another"),
        ("src/heap/front.h", "touches what is inlined"),
    ):
        if name:
            (folder / name).write_text((folder / name).read_text() + "int more;\n")
        git("add", "-A")
        git("commit", "--quiet", "-m", message)
    (folder / "src/heap/free.c").write_text((folder / "src/heap/free.c").read_text() + "int now;\n")
    return Checkout(folder, folder / "build")


def test_commits_that_touched_what_lost_are_suspects(tmp_path: Path) -> None:
    checkout = repository(tmp_path)
    lines = suspects(checkout, "HEAD~2 with changes", [Loss("mix", (), (), ("free_it",))])
    assert [line.partition(" ")[0] for line in lines] == ["commit", "not"]
    assert lines[0].endswith("touches what is inlined")
    assert lines[1] == "not committed: src/heap/free.c"


def test_where_no_function_lost_all_sources_are_under_suspicion(tmp_path: Path) -> None:
    lines = suspects(repository(tmp_path), "HEAD~2", [Loss("mix", (), ())])
    assert sum(line.startswith("commit ") for line in lines) == 2


def test_a_base_that_is_not_there_is_said(tmp_path: Path) -> None:
    lines = suspects(repository(tmp_path), "0123456789ab", [Loss("mix", (), ())])
    assert (
        lines[0] == "commit 0123456789ab of the baseline is not in this clone: what came since is not known"
    )


# ---- live ---------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(served: Path) -> Path:
    """A build whose compiler has a baseline."""
    for tool in ("valgrind", "cmake"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    path = baseline_path(Checkout.find(served))
    if not path.is_file():
        pytest.skip(f"there is no baseline {path.name}")
    return served


def test_nothing_was_lost_since_the_baseline(counted: Path) -> None:
    done = lab("baseline", "check", "--build", str(counted))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{3 * len(CELLS_COUNTED)} figures kept, 0 lost since ")


@pytest.fixture
def planted(counted: Path, tmp_path: Path) -> Path:
    """A build directory whose library has the planted loss."""
    checkout, scratch = Checkout.find(counted), tmp_path / "planted"
    scratch.mkdir()
    library = planted_build(checkout, planted_read(checkout), scratch)
    (library.parent / "bench").symlink_to((counted / "bench").resolve())
    return library.parent


def test_a_planted_loss_is_found_by_the_gate_and_by_where(
    counted: Path, planted: Path, tmp_path: Path
) -> None:
    loss = planted_read(Checkout.find(counted))
    kept = tmp_path / "check.json"
    done = lab("baseline", "check", "--build", str(planted), "--json", str(kept))
    assert done.returncode == 1, done.stdout + done.stderr
    content = json.loads(kept.read_text())
    found, lost = ([kind(**one) for one in content[name]] for kind, name in ((Gate, "gates"), (Loss, "lost")))
    assert check_finding(loss, found, lost).found

    arms = ["--arm", str(planted / "libhakmem.so"), "--diff", str(counted / "libhakmem.so")]
    done = lab("where", "--build", str(counted), *arms, "--bench", loss.bench, "--only-instructions")
    assert done.returncode == 0, done.stderr
    assert f"The largest change in the allocator: {loss.function}, " in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("confirm: ./hakmem ab ") and "--predict -" in last


LOSS = Planted("src/a.c", "x", "y", "free", "free", "mix", "two multiplications")


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ({"free": 23.0, "malloc": 17.0}, True),
        ({"free": 19.0, "malloc": 17.0}, False),  # cheaper is no loss
        ({"free": 23.0, "malloc": 21.0}, False),  # another is dearer
        ({"free": 21.0, "malloc": 17.0}, False),
    ],
)
def test_where_found_it_when_its_function_is_the_dearest(after: dict[str, float], found: bool) -> None:
    sides = [
        Where(
            task="mix",
            arm="a",
            identity="",
            commit="",
            unit="operation",
            operations=1,
            total=sum(of.values()),
            functions=tuple(FunctionCost("allocator", name, cost) for name, cost in of.items()),
            spots=(),
            watched_operations=0,
            faults=(),
            calls=(),
            samples=(),
        )
        for of in ({"free": 21.0, "malloc": 17.0}, after)
    ]
    assert where_finding(LOSS, where_diff(*sides)).found == found


@pytest.mark.parametrize(
    ("state", "entries", "names", "found"),
    [
        ("missed", ("free: 22.0 before",), ("free",), True),
        ("met", (), (), False),
        ("missed", ("malloc: 18.0 before",), ("free",), False),
        ("missed", ("free: 22.0 before",), ("malloc",), False),
    ],
)
def test_the_gate_found_it_when_it_names_who_did_it(
    state: str, entries: tuple[str, ...], names: tuple[str, ...], found: bool
) -> None:
    gate = Gate("mix", "instructions", 40.0, 42.0, state, 0.2)
    assert check_finding(LOSS, [gate], [Loss("mix", entries, (), names)]).found == found


def test_a_loss_whose_text_is_gone_is_an_error(tmp_path: Path) -> None:
    checkout = Checkout(ROOT, tmp_path)
    with pytest.raises(LabError, match=r"has the text of the planted loss 0 times, not once"):
        planted_build(checkout, replace(planted_read(checkout), find="no such text"), tmp_path)
