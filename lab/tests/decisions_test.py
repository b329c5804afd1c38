"""What the engine decided, told from outside; and a program that starts where another settled."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.reports import decisions as words
from hakmem_lab.sight import decisions as sight
from hakmem_lab.sight import ring
from hakmem_lab.sight.decisions import Decision, Decisions, Look, looks_of_process, settled_find
from hakmem_lab.sight.freeze import DECAY_MAX_MS, profile_text
from hakmem_lab.sight.process import process_open
from lab_command import lab
from lab_processes import BUSY, HEAD, MEDIUM, on_hakmem, wait_for_rest

ROOT = Path(__file__).resolve().parents[2]

# Bursts of two sizes that no thread's first stacks hold, in the program's first thread and in another that lives on.
SWINGS = (
    HEAD
    + """
enum { BLOCKS = 1000, ROUNDS = 20 };
static void swing(size_t bytes) {
    void *blocks[BLOCKS];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) blocks[i] = filled(bytes);
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
}
static pthread_barrier_t done;
static void *work(void *unused) {
    swing(64);
    pthread_barrier_wait(&done);
    for (;;) pause();
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_barrier_init(&done, NULL, 2);
    swing(1024);
    pthread_create(&thread, NULL, work, NULL);
    pthread_barrier_wait(&done);
    wait_for_end();
}
"""
)


def look_of(pid: int) -> Look:
    (look,) = looks_of_process(process_open(pid))
    return look


def depths_of(look: Look) -> list[Decision]:
    return [one for one in look.decisions.last if one.kind == "depth"]


# ---- reading ---------------------------------------------------------------------------------------------------


def test_each_change_of_a_depth_is_told(checkout: Checkout, tmp_path: Path) -> None:
    with on_hakmem(checkout, tmp_path, SWINGS) as pid:
        look = look_of(pid)
    assert [one.number for one in look.decisions.last] == list(range(1, look.decisions.made + 1))
    for size, threads in ((1040, 1), (64, 1)):
        mine = [one for one in depths_of(look) if one.block_bytes == size and not one.is_refusal]
        assert len({one.thread_id for one in mine}) == threads
        assert all(before.after == after.before for before, after in pairwise(mine))
        assert look.depths[size] == mine[-1].after > mine[0].before
    assert len({one.thread_id for one in depths_of(look)}) == 2


def test_a_process_that_decided_nothing_is_not_touched(checkout: Checkout, tmp_path: Path) -> None:
    """Its ring is memory that it never touched, and that is not brought in by whoever looks."""
    with on_hakmem(checkout, tmp_path, HEAD + "int main(void) { wait_for_end(); }") as pid:
        wait_for_rest(pid)
        before = process_open(pid).stat()[7]
        looks = [look_of(pid) for _ in range(3)]
        assert process_open(pid).stat()[7] == before
    assert [look.decisions.made for look in looks] == [0, 0, 0]
    assert looks[0].decisions.last == ()


def test_what_is_read_of_a_busy_process_is_whole(checkout: Checkout, tmp_path: Path) -> None:
    seen = 0
    with on_hakmem(checkout, tmp_path, BUSY, thread_cache="64KiB") as pid:
        for _ in range(20):
            for one in depths_of(look_of(pid)):
                seen += 1
                assert one.block_bytes is not None
                assert one.thread_id == pid
                assert 1 <= one.after <= 8192
                assert one.is_refusal == (one.reason in ("no_budget", "no_memory"))
                assert words.sentence(one).startswith(f"thread {pid}: {one.block_bytes}-byte bin ")
    assert seen > 0


def test_only_what_stayed_through_three_looks_is_whole() -> None:
    copies = [
        {"number": np.array(numbers), "value": np.array(values)}
        for numbers, values in (
            ([1, 2, 0, 4, 5], [10, 20, 30, 40, 50]),
            ([1, 2, 3, 4, 5], [11, 21, 31, 41, 51]),
            ([1, 6, 3, 0, 5], [12, 22, 32, 42, 52]),
        )
    ]
    rows = list(ring.whole_rows(copies))
    assert [(row["number"], row["value"]) for row in rows] == [(1, 11), (5, 51)]


def test_the_kinds_and_reasons_are_the_librarys() -> None:
    text = (ROOT / "src/ace/decision.h").read_text()
    reasons = re.findall(r'X\(ACE_REASON_\w+, (\w+), "(\w+)"', text)
    assert list(words.WHY) == [name for _kind, name in reasons]
    schema = json.loads((ROOT / "docs/statistics.schema.json").read_text())
    last = schema["properties"]["decisions"]["properties"]["last"]["items"]
    kinds = re.findall(r'X\(ACE_KIND_\w+, "(\w+)"', text)
    assert last["properties"]["kind"]["enum"] == kinds
    document = (ROOT / "docs/ace.md").read_text()
    for _kind, name in reasons:
        assert f"`{name}`" in document


# ---- words -----------------------------------------------------------------------------------------------------


def decided(kind: str, reason: str, before: int, after: int, **inputs: int) -> Decision:
    thread = 12 if kind in ("depth", "kept") else 0
    return Decision(1, 5, kind, reason, thread, 64 if kind == "depth" else None, before, after, inputs)


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (
            decided("depth", "swing", 32, 64, refilled_blocks=64, spilled_blocks=48),
            "thread 12: 64-byte bin 32 -> 64 blocks: took 64 blocks and gave 48 back",
        ),
        (
            decided("depth", "batch", 32, 64, refills=2, spills=1),
            "thread 12: 64-byte bin 32 -> 64 blocks: ran empty 2 times and full once: larger batches cost less a block",
        ),
        (
            decided("depth", "batch", 32, 64, refills=3, spills=0),
            "thread 12: 64-byte bin 32 -> 64 blocks: ran empty 3 times: larger batches cost less a block",
        ),
        (
            decided("depth", "no_budget", 64, 64, sized_bytes=65536, budget_bytes=65536, wanted_bytes=4096),
            "thread 12: 64-byte bin stays at 64 blocks: 4.0 KiB more were wanted; the thread's bins were sized for"
            " 64.0 KiB of 64.0 KiB",
        ),
        (
            decided("half_life", "retaken", 500, 2000, returned_pages=1000, retaken_pages=900),
            "half-life 500 ms -> 2 s: of 62.5 MiB given back lately 56.2 MiB were used again",
        ),
        (
            decided("purge_thread", "worth_it", 0, 1, returnable_bytes=4 << 20, mark_bytes=1 << 20),
            "a purge thread started: 4.0 MiB could go back, 1.0 MiB are worth a thread",
        ),
        (
            decided("kept", "hardly_touched", 1, 2, held_bytes=2 << 20, touched_bytes=64 << 10),
            "thread 12: medium blocks 1 -> 2 times their budget: it keeps 2.0 MiB, of which 64.0 KiB were touched",
        ),
        (decided("depth", "hunch", 4, 8, stars=3), "thread 12: 64-byte bin 4 -> 8 blocks: hunch (stars 3)"),
    ],
)
def test_a_decision_in_words(decision: Decision, text: str) -> None:
    assert words.sentence(decision) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (999, "999 ms"),
        (1500, "1.5 s"),
        (99_900, "99.9 s"),
        (300_000, "5 min"),
        (5_000_000, "83.3 min"),
        (86_400_000, "24 h"),
        (36_000_000_000, "10000 h"),
    ],
)
def test_a_time_in_words(ms: int, text: str) -> None:
    assert words.duration_text(ms) == text


def test_where_sizes_settled() -> None:
    def depth(thread: int, size: int, after: int) -> Decision:
        return Decision(1, 0, "depth", "swing", thread, size, 32, after, {})

    last = [depth(1, 64, 64), depth(1, 64, 128), depth(2, 64, 512), depth(2, 64, 256), depth(3, 80, 64)]
    settled = {one.block_bytes: one for one in settled_find(last, {64: 128, 96: 32})}
    assert {size: one.depth for size, one in settled.items()} == {64: 256, 80: 64, 96: 32}
    assert settled[64].reasons == {"swing": 4}
    assert not settled[96].reasons


# ---- the command -----------------------------------------------------------------------------------------------


def test_explain_decisions_of_a_process(checkout: Checkout, tmp_path: Path) -> None:
    out = tmp_path / "decisions.json"
    with on_hakmem(checkout, tmp_path, SWINGS) as pid:
        done = lab("explain", "--decisions", str(pid), "--json", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(rf"thread {pid}: 1040-byte bin 15 -> 30 blocks: ran ", done.stdout)
    content = json.loads(out.read_text())
    assert content["made"] == sum(one["times"] for one in content["counts"]) == len(content["last"])
    settled = {one["block_bytes"]: one for one in content["settled"]}
    assert settled[64]["depth"] >= 128
    assert settled[64]["reasons"]


def test_explain_decisions_of_a_command_and_of_its_report(build: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    script = "kept = [[bytes(3000) for _ in range(2000)] for _ in range(5)]; import time; time.sleep(0.8); raise SystemExit(3)"
    done = lab(
        *("explain", "--decisions", "--when-rss", "25M", "--build", str(build)),
        *("--", "python3", "-c", script),
        HAKMEM_STATS="json",
        HAKMEM_STATS_FILE=str(report),
    )
    assert done.returncode == 3
    assert "batch" in done.stderr
    again = lab("explain", "--decisions", str(report))
    assert again.returncode == 0, again.stderr
    assert "-byte bin " in again.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--freeze", "x", "1"], "--freeze is for --decisions"),
        (["--decisions", "--freeze", "/nowhere/x", "--", "touch", "/nowhere/y"], "cannot write /nowhere/x: "),
        (["--decisions", "--watch", "3s", "1"], "--watch is not for --decisions"),
        (["--decisions", "--after", "3s", "1"], "--after and --when-rss are for a command"),
        (["--decisions", "nowhere.json"], "nowhere.json cannot be read: "),
        (["--decisions", "pyproject.json"], "pyproject.json cannot be read: "),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], line: str) -> None:
    done = lab("explain", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"hakmem: {line}")


@pytest.mark.parametrize(
    "text",
    ["{", "[" * 100_000, "[]", "{}", '{"form": "2.0", "decisions": {}}', '{"form": "1.0"}'],
    ids=["no end", "deep", "list", "empty", "newer", "older"],
)
def test_a_file_without_decisions(text: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(LabError, match=r"is no JSON|holds no decisions"):
        sight.look_of_report(file)


DECIDED = {"number": 1, "time_ms": 5, "kind": "pace", "reason": "works", "from": 0, "to": 1, "inputs": {}}
REPORT = {
    "form": "1.0",
    "pid": 7,
    "program": "p",
    "hakmem": "1",
    "half_life_ms": 500,
    "options": [],
    "decisions": {"counts": [], "last": [DECIDED]},
}


@pytest.mark.parametrize(
    "changed",
    [
        {"time_ms": "x"},
        {"time_ms": 10**400},
        {"from": -1},
        {"to": None},
        {"block_bytes": 1.5},
        {"inputs": 5},
        {"inputs": {"quiet_ms": "x"}},
        {"kind": 3},
    ],
    ids=str,
)
def test_a_report_of_something_else_is_refused(changed: dict[str, object], tmp_path: Path) -> None:
    """Numbers and words stand where they are expected."""
    file = tmp_path / "report.json"
    file.write_text(json.dumps(REPORT))
    assert sight.look_of_report(file).decisions.last[0].number == 1
    last = [{**DECIDED, **changed}]
    file.write_text(json.dumps({**REPORT, "decisions": {"counts": [], "last": last}}))
    with pytest.raises(LabError, match="holds no decisions"):
        sight.look_of_report(file)


# ---- freezing --------------------------------------------------------------------------------------------------


def settings_of(profile: Path) -> dict[str, str]:
    lines = (line.partition("#")[0].strip() for line in profile.read_text().splitlines())
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines if line)}


def test_a_frozen_program_starts_where_it_settled(checkout: Checkout, tmp_path: Path) -> None:
    profile = tmp_path / "frozen.profile"
    with on_hakmem(checkout, tmp_path, SWINGS, decay="2s") as pid:
        done = lab("explain", "--decisions", str(pid), "--freeze", str(profile))
        assert done.returncode == 0, done.stderr
        assert f"HAKMEM_PROFILE={profile}" in done.stdout.replace("\n", "")
        free = look_of(pid)
    settings = settings_of(profile)
    frozen = {
        int(size): int(depth)
        for size, _, depth in (item.partition(":") for item in settings["bin_depth"].split("+"))
    }
    assert frozen == free.depths
    assert frozen[64] >= 128
    assert (settings["adapt"], settings["decay"]) == ("off", "2000ms")
    with on_hakmem(checkout, tmp_path, SWINGS, profile=str(profile)) as pid:
        look = look_of(pid)
        assert {size: look.depths[size] for size in frozen} == frozen
        assert depths_of(look) == []
        assert look.options["bin_depth"] == (settings["bin_depth"], "file")
    with on_hakmem(checkout, tmp_path, SWINGS, profile=str(profile), adapt="on") as pid:
        look = look_of(pid)  # what the file names stays, whoever adapts
        assert {size: look.depths[size] for size in frozen} == frozen


def test_a_frozen_program_keeps_medium_blocks_from_the_start_on(checkout: Checkout, tmp_path: Path) -> None:
    """And none of a size of which it kept none: the option takes no 0."""
    with on_hakmem(checkout, tmp_path, MEDIUM) as pid:
        look = look_of(pid)
    cached, once = 128 << 10, 256 << 10
    mine = [one for one in depths_of(look) if one.block_bytes == cached]
    assert [(one.before, one.after) for one in mine] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert (look.depths[cached], look.depths[once]) == (4, 0)
    profile = tmp_path / "frozen.profile"
    profile.write_text(profile_text(look))
    assert f"{cached}:4" in settings_of(profile)["bin_depth"].split("+")
    with on_hakmem(checkout, tmp_path, MEDIUM, profile=str(profile)) as pid:
        look = look_of(pid)
    assert (look.depths[cached], look.depths[once]) == (4, 0)
    assert depths_of(look) == []


def test_a_profile_says_where_its_lines_came_from() -> None:
    last = (
        Decision(8, 0, "depth", "swing", 7, 64, 32, 512, {}),
        Decision(9, 0, "half_life", "retaken", 0, None, 500, 2000, {}),
        Decision(10, 0, "half_life", "forgotten", 0, None, 2000, 500, {}),
    )
    look = Look(
        of="process 7",
        program="serv\u00e9r",
        library="0.1.0",
        decisions=Decisions({("depth", "swing"): 10}, last),
        depths={64: 512, 80: 32, 1 << 20: 0},
        half_life_ms=500,
        options={
            "objective": ("small", "conf"),
            "thread_cache": ("2MiB", "objective"),
            "huge_pages": ("never", "profile"),
        },
    )
    text = profile_text(look)
    assert "settled in serv?r" in text
    assert "after 10 decisions" in text
    assert "2 sizes, 34.5 KiB a thread at most, by 1 decision about 1 thread" in text
    assert "\nbin_depth = 64:512+80:32\n" in text
    assert re.search(r"^decay = 2000ms +# the half-life, by 2 decisions$", text, re.MULTILINE)
    assert re.search(r"^objective = small +# as it was: conf$", text, re.MULTILINE)
    assert "thread_cache" not in text  # set explicitly it would follow the objective no more
    assert re.search(r"^huge_pages = never +# as it was: profile$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("reached", "half_life", "frozen"),
    [(2000, 2000, "2000ms"), (2000, 90, "90ms"), (2000, None, "never"), (7680000, 7680000, "3600000ms")],
    ids=[
        "as it was learned",
        "as it was set since",
        "as it was set to never",
        "the most that the option takes",
    ],
)
def test_a_half_life_that_is_frozen_is_in_force_and_taken(
    reached: int, half_life: int | None, frozen: str
) -> None:
    decision = Decision(1, 0, "half_life", "retaken", 0, None, 500, reached, {})
    decisions = Decisions({("half_life", "retaken"): 1}, (decision,))
    look = Look(
        of="", program="p", library="1", decisions=decisions, depths={}, half_life_ms=half_life, options={}
    )
    assert re.search(rf"^decay = {frozen} ", profile_text(look), re.MULTILINE)


def test_the_most_that_the_option_takes_is_the_librarys() -> None:
    table = (ROOT / "src/api/options_table.h").read_text()
    assert f"NUMBER(decay, ANYTIME, MILLISECONDS, 0, {DECAY_MAX_MS}, " in table


def test_the_longest_profile_can_be_read() -> None:
    look = Look(
        of="",
        program="p" * 15,
        library="10.10.10",
        decisions=Decisions({}, ()),
        depths={1000000 + number: 8192 for number in range(79)},
        half_life_ms=None,
        options={},
    )
    text = profile_text(look)
    assert len(text) < 4095
    assert "\ndecay = never" in text
