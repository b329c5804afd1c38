"""The explanations of tests/coverage are of lines that exist, and are judged as they should; ./hakmem coverage counts."""

from pathlib import Path

import pytest
from judge import EXPLANATIONS, Explanation, Judgement, Line, Place, read_counts, read_explanations
from toolbox import ROOT

PLACES = [place for explanation in read_explanations(EXPLANATIONS) for place in explanation.places]


def test_every_explanation_is_a_sentence_of_its_own() -> None:
    reasons = [explanation.why for explanation in read_explanations(EXPLANATIONS)]
    assert reasons
    assert all(reason[0].isupper() and reason.endswith(".") and len(reason.split()) > 4 for reason in reasons)
    assert len(set(reasons)) == len(reasons)
    assert len({str(place) for place in PLACES}) == len(PLACES), "a place is explained once"


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_is_explained_is_there(place: Place) -> None:
    assert place.file.startswith("src/")
    text = (ROOT / place.file).read_text()
    name = place.function.split("(")[0]  # of C++ functions gcov says the parameters, too
    assert f"{name}(" in text
    if place.text is not None:
        assert place.text in [line.strip() for line in text.splitlines()]
        assert place.branches >= 1


# ---- the judgement ----------------------------------------------------------------------------------

FULL = Line("src/a.c", "full", 1, "if (a) b();", 3, (1, 2))
HALF = Line("src/a.c", "half", 2, "if (a) c();", 3, (3, 0))
NONE = Line("src/a.c", "none", 3, "return d && e;", 0, (0, 0, 0, 0))


def judge(*places: Place, by_chance: bool = False) -> Judgement:
    return Judgement([FULL, HALF, NONE], [Explanation("For the test's sake.", places, by_chance)])


def test_what_is_not_explained_is_found() -> None:
    judgement = judge(Place("src/a.c", "half", "if (a) c();"))
    assert judgement.unexplained == [NONE]
    assert not judgement.is_good


def test_what_is_explained_is_good() -> None:
    assert judge(Place("src/a.c", "half", "if (a) c();"), Place("src/a.c", "none")).is_good


@pytest.mark.parametrize(
    "place",
    [
        Place("src/a.c", "full", "if (a) b();"),
        Place("src/a.c", "full"),
        Place("src/a.c", "half"),
        Place("src/a.c", "half", "if (gone) c();"),
        Place("src/a.c", "gone"),
        Place("src/gone.c", "half", "if (a) c();"),
        Place("src/a.c", "half", "if (a) c();", 2),
    ],
    ids=str,
)
def test_an_explanation_of_what_runs_or_is_gone_is_found(place: Place) -> None:
    assert judge(place).needless == [place]


def test_more_branches_than_are_explained_are_found() -> None:
    worse = Line("src/a.c", "half", 2, "if (a) c();", 3, (3, 0, 0))
    judgement = Judgement([worse], [Explanation("One branch.", (Place("src/a.c", "half", "if (a) c();"),))])
    assert judgement.unexplained == [worse]


def test_what_is_left_to_chance_may_run_but_not_be_gone() -> None:
    runs, gone = Place("src/a.c", "full", "if (a) b();"), Place("src/a.c", "full", "if (gone) b();")
    assert judge(runs, gone, by_chance=True).needless == [gone]


def test_counts_are_read_with_the_text_of_their_lines(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int a(int b) {\n    return b ? 1 : 2;\n}\n")
    branches = [{"count": 4}, {"count": 0}]
    lines = [
        {"line_number": 2, "function_name": "a", "count": 4, "branches": branches},
        {"line_number": 1, "function_name": "<unknown function 1>", "count": 4, "branches": []},
        {"line_number": 3, "count": 0, "branches": [], "gcovr/noncode": True},
    ]
    counted = {"files": [{"file": "a.c", "lines": lines}]}
    assert read_counts(counted, tmp_path) == [
        Line("a.c", "a", 2, "return b ? 1 : 2;", 4, (4, 0)),
        Line("a.c", "a", 1, "int a(int b) {", 4, ()),
    ]
