"""docs/options.md and the manual page say of every option what the table in src/api/options_table.h says.

A small C program prints the tables that the documents must hold, and the lines that it quotes, by
the library's own functions.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "options.md"
MANUAL = ROOT / "docs" / "man" / "hakmem.3"

# Each line is a heading of the document, a tab and a row of the table under it. With an argument it
# only reads its environment, so that what it says of it can be compared.
PRINTER = r"""
#include "api/options.h"

#include <stdio.h>

#define PROFILE_ROW(id, word, text, settings) \
    printf("Profiles\t| `%s` | %s | %s%s%s |\n", word, text, settings[0] ? "`" : "", settings, \
           settings[0] ? "`" : "none");

/* Of temporary files, which are not made here. */
uint32_t os_thread_id(void) { return 0; }

int main(int argc, char **argv) {
    struct hak_options options;
    (void)argv;
    if (argc > 1) {
        options_read_process(&options);
        return 0;
    }
    for (size_t i = 0; i < OPTION_TOTAL; i++) {
        const struct option_info *info = &option_infos[i];
        char accepts[OPTION_TEXT_BYTES], initial[OPTION_TEXT_BYTES];
        option_describe(info, accepts, sizeof accepts);
        option_format(info, info->initial, initial, sizeof initial);
        printf("Every option\t| `%s` | %s | %s | `%s` | %s | %s | %s |\n", info->name,
               option_type_name(info->type), accepts, initial, info->anytime ? "any time" : "start", info->text,
               info->cost);
        for (size_t j = 0; i != OPTION_profile && j < info->choice_count; j++)
            printf("Choices\t| `%s` | `%s` | %s |\n", info->name, info->choices[j].word,
                   info->choices[j].text);
    }
    OPTION_PROFILES(PROFILE_ROW)
    for (size_t i = 0; i < OPTION_OTHERS; i++)
        printf("Other variables\t%s\n", option_other_variables[i]);
}
"""


@pytest.fixture(scope="module")
def printer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("options")
    source, program = folder / "printer.c", folder / "printer"
    source.write_text(PRINTER)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-std=gnu11", "-D_GNU_SOURCE", f"-I{ROOT / 'src'}", "-o", program]
    used = [
        "api/options.c",
        "ace/budget.c",
        "ace/decay.c",
        "api/option_depths.c",
        "api/option_messages.c",
        "api/option_values.c",
        "os/clock.c",
        "os/environment.c",
        "os/file.c",
        "os/filter.c",
        "os/message.c",
    ]
    subprocess.run([*compiler, *flags, source, *(ROOT / "src" / file for file in used)], check=True)
    return program


@pytest.fixture(scope="module")
def table(printer: Path) -> dict[str, list[str]]:
    """What the source says: rows by the heading they belong under."""
    output = subprocess.run([printer], check=True, capture_output=True, text=True).stdout
    rows: dict[str, list[str]] = {}
    for line in output.splitlines():
        heading, row = line.split("\t")
        rows.setdefault(heading, []).append(row)
    return rows


def documented(heading: str) -> list[str]:
    """The rows of the table under `## heading`, without its two header lines."""
    section = DOCUMENT.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def manual_item(row: str) -> str:
    """The same row as the manual page has it: a sentence a line."""
    cells = row.strip("| ").split(" | ")
    name, _, accepts, initial, when, text, cost = (cell.replace("`", "") for cell in cells)
    set_by_calls = "Can be set at any time" if when == "any time" else "Is set at the start only"
    sentences = text.replace(". ", ".\n")
    default = f"{initial or 'empty'} by default"
    return f".It Li {name}\n{sentences}\nTakes {accepts}; {default}.\n{set_by_calls}.\nCost: {cost}.\n"


def test_manual_page_lists_every_option(table: dict[str, list[str]]) -> None:
    section = MANUAL.read_text().split("\n.Ss The options\n", 1)[1].split("\n.Sh ", 1)[0]
    listed = section.split("\n.Bl -tag -width Ds\n", 1)[1].split("\n.El", 1)[0]
    assert listed + "\n" == "".join(manual_item(row) for row in table["Every option"])


@pytest.mark.parametrize("heading", ["Every option", "Choices", "Profiles"])
def test_table_agrees(table: dict[str, list[str]], heading: str) -> None:
    assert documented(heading) == table[heading]


def test_types_are_those_of_the_options(table: dict[str, list[str]]) -> None:
    used = {row.split(" | ")[1] for row in table["Every option"]}
    assert {row.strip("| ").split(" | ")[0] for row in documented("Values")} == used


def test_other_variables_are_named(table: dict[str, list[str]]) -> None:
    variables = [f"HAKMEM_{name.upper()}" for name in table["Other variables"]]
    rows = [row.split("`")[1] for row in documented("Other variables")]
    assert rows == variables


def test_examples_are_true(printer: Path) -> None:
    """Each `$ HAKMEM_X=y ./program` under Mistakes prints the line that follows it."""
    lines = DOCUMENT.read_text().split("\n## Mistakes\n", 1)[1].split("```")[1].strip().splitlines()
    assert len(lines) >= 2
    for command, expected in zip(lines[::2], lines[1::2], strict=True):
        name, value = command.removeprefix("$ ").removesuffix(" ./program").split("=", 1)
        read = subprocess.run(
            [printer, "read"], env={name: value}, check=True, capture_output=True, text=True
        )
        assert read.stderr == expected + "\n"
