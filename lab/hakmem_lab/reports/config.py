"""The options in force, for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict

from hakmem_lab.grid import Grid
from hakmem_lab.sight.config import Config


def config_grid(config: Config) -> Grid:
    return Grid(
        title=f"hakmem {config.library}: options of {config.of}",
        columns=("option", "value", "from", "decided", "default", "accepts"),
        rows=tuple(
            (one.name, one.value, one.source, one.decided, one.default, one.accepts) for one in config.options
        ),
        text_columns=6,
    )


def config_lines(config: Config) -> list[str]:
    return [mistake.line for mistake in config.mistakes]


def config_content(config: Config) -> dict[str, object]:
    return {
        "of": config.of,
        "hakmem": config.library,
        "options": [asdict(one) for one in config.options],
        "mistakes": [asdict(one) | {"line": one.line} for one in config.mistakes],
    }
