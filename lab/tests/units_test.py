from __future__ import annotations

import pytest
from hakmem_lab.commands.units import (
    SECONDS_MAX,
    bytes_parse,
    change_parse,
    seconds_parse,
    seconds_text,
    share_parse,
)
from hakmem_lab.errors import LabError
from hypothesis import given, strategies


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("60", 60), ("2m", 120), ("500ms", 0.5), ("1.5h", 5400), (" 3 s", 3)]
)
def test_times(text: str, seconds: float) -> None:
    assert seconds_parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("seconds", "text"), [(60.0, "60s"), (1080000.0, "1080000s"), (0.5, "0.5s"), (1e-05, "0.00001s")]
)
def test_a_time_is_written_as_it_is_read(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@given(strategies.floats(1e-6, SECONDS_MAX))
def test_a_time_that_was_written_is_the_same_when_it_is_read(seconds: float) -> None:
    assert seconds_parse(seconds_text(seconds)) == seconds


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), ("0.03", 0.03), (".5", 0.5), ("0.5 %", 0.005)])
def test_shares(text: str, share: float) -> None:
    assert share_parse(text) == pytest.approx(share)


@pytest.mark.parametrize(("text", "ratio"), [("+5%", 1.05), ("-3%", 0.97), ("5%", 1.05), ("0%", 1.0)])
def test_changes(text: str, ratio: float) -> None:
    assert change_parse(text) == pytest.approx(ratio)


@pytest.mark.parametrize(
    "text", ["", "much", "0s", "-5s", "5 weeks", "1e3s", "nan", "99999999999h", "9" * 400]
)
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(LabError, match="--budget"):
        seconds_parse(text)


@pytest.mark.parametrize("text", ["", "3", "60%", "0%", "-3%", "3 s", "nan"])
def test_what_is_not_a_share_is_refused(text: str) -> None:
    with pytest.raises(LabError, match="--margin is a share"):
        share_parse(text)


@pytest.mark.parametrize("text", ["", "5", "faster", "-100%", "+5"])
def test_what_is_not_a_change_is_refused(text: str) -> None:
    with pytest.raises(LabError, match="--predict is a change"):
        change_parse(text)


@pytest.mark.parametrize("text", ["", "much", "0", "-5M", "5 T", "nan", "99999999999G", "9" * 400])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(LabError, match="--when-rss is "):
        bytes_parse(text, "when-rss")
