from __future__ import annotations

import pytest
from hakmem_lab.sight.options import (
    Kind,
    Option,
    OptionInfo,
    distance,
    mistakes_find,
    mistakes_told,
    nearest,
)


def info(
    kind: Kind, minimum: int = 0, maximum: int = 1 << 62, word: str = "", word_value: int = 0
) -> OptionInfo:
    choices = ("auto", "never", "always") if kind is Kind.CHOICE else ()
    return OptionInfo("name", kind, True, minimum, maximum, word, word_value, choices, 0, "cost", "text")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Kind.BOOL, 1, "on"),
        (Kind.BOOL, 0, "off"),
        (Kind.COUNT, 64, "64"),
        (Kind.BYTES, 0, "0B"),
        (Kind.BYTES, 4096, "4KiB"),
        (Kind.BYTES, 4097, "4097B"),
        (Kind.BYTES, 3 << 30, "3GiB"),
        (Kind.BYTES, 1 << 40, "1TiB"),
        (Kind.MILLISECONDS, 500, "500ms"),
        (Kind.MILLISECONDS, 2000, "2s"),
        (Kind.MILLISECONDS, 120000, "2min"),
        (Kind.CHOICE, 2, "always"),
        (Kind.PATH, 0, ""),
    ],
)
def test_values_are_written_in_the_largest_unit_that_divides_them(kind: Kind, value: int, text: str) -> None:
    assert info(kind).format(value) == text


def test_a_word_stands_for_its_value() -> None:
    never = info(Kind.MILLISECONDS, word="never", word_value=(1 << 64) - 1, maximum=3600000)
    assert never.format((1 << 64) - 1) == "never"
    assert never.describe() == "0ms to 60min, or never"


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Kind.BOOL, "on or off"), (Kind.CHOICE, "auto, never or always"), (Kind.PATH, "a path")],
)
def test_what_is_accepted(kind: Kind, text: str) -> None:
    assert info(kind).describe() == text


@pytest.mark.parametrize(
    ("word", "name", "edits"),
    [
        ("decay", "decay", 0),
        ("DECAY", "decay", 0),
        ("deacy", "decay", 1),
        ("dcay", "decay", 1),
        ("cache", "thread_cache", 1),
        ("st", "stats", 3),
        ("", "stats", 5),
    ],
)
def test_distance(word: str, name: str, edits: int) -> None:
    assert distance(word, name) == edits


def test_nearest() -> None:
    assert nearest("stat", ["decay", "stats", "quiet"]) == "stats"


# ---- mistakes -------------------------------------------------------------------------------------------


def option(name: str, source: str = "default") -> Option:
    return Option(name, "v", source, "d", "", "0ms to 60min", True, "text", "cost")


OPTIONS = [option("decay"), option("stats"), option("thread_cache", "environment"), option("window", "conf")]
OTHERS = ["conf", "proof"]


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        (
            "HAKMEM_STAT",
            "1",
            "HAKMEM_STAT is not an option and is ignored; the nearest is HAKMEM_STATS (0ms to 60min)",
        ),
        ("HAKMEM_PROFF", "f", "HAKMEM_PROFF is not an option and is ignored; the nearest is HAKMEM_PROOF"),
        (
            "HAKMEM_decay",
            "1s",
            "HAKMEM_decay is not an option and is ignored; the nearest is HAKMEM_DECAY (0ms",
        ),
        ("HAKMEM_DECAY", "2h", "HAKMEM_DECAY=2h is not understood and is ignored; it takes 0ms to 60min"),
        (
            "HAKMEM_CONF",
            "decai:1s",
            "HAKMEM_CONF: decai is not an option and is ignored; the nearest is decay (0ms",
        ),
        ("HAKMEM_CONF", " decay=9 ,", "HAKMEM_CONF: decay=9 is not understood and is ignored; it takes"),
    ],
)
def test_a_mistake_is_one_line(variable: str, value: str, line: str) -> None:
    (mistake,) = mistakes_find({variable: value, "PATH": "/bin"}, OPTIONS, OTHERS)
    assert mistake.line.startswith(line)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HAKMEM_THREAD_CACHE", "1M"),
        ("HAKMEM_DECAY", ""),
        ("HAKMEM_PROOF", "/tmp/p"),
        ("HAKMEM_CONF", "window:1G,,thread_cache=1M"),
        ("HAKMEMORY", "1"),
    ],
)
def test_what_is_right_is_no_mistake(variable: str, value: str) -> None:
    assert mistakes_find({variable: value}, OPTIONS, OTHERS) == []


def test_what_the_environment_does_not_show_is_told_by_the_library() -> None:
    """And each mistake once, also where its name is too long to be repeated whole."""
    long_name = "x" * 100
    given = {"HAKMEM_DECAY": "2h", "HAKMEM_CONF": f"STAT:1,{long_name}:2"}
    found = mistakes_find(given, OPTIONS, OTHERS)
    assert len(found) == 3
    lines = [
        "hakmem: HAKMEM_DECAY=2h is out of range and is ignored; it takes 0ms to 60min",
        "hakmem: HAKMEM_CONF: STAT is not an option and is ignored; the nearest is stats",
        f"hakmem: HAKMEM_CONF: {long_name[:44]}... is not an option and is ignored; the nearest is stats",
        "hakmem: profile file, line 3: decya is not an option and is ignored; the nearest is decay",
        "hakmem: the profile ./none is ignored: it cannot be read",
        "somebody else",
    ]
    told = mistakes_told("\n".join(lines), found)
    assert [mistake.line for mistake in told] == [line.removeprefix("hakmem: ") for line in lines[3:5]]
    assert [mistake.setting for mistake in told] == ["profile file, line 3: decya", "the profile ./none"]
