"""Comparisons that come up again and again, as files: NAME.toml."""
