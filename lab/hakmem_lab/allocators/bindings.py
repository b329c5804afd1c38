"""Which library owns malloc, according to the dynamic linker.

With LD_DEBUG=bindings it writes a line for every symbol that it binds, and with LD_BIND_NOW it binds them all at
the start. So one run proves for every process of a command that malloc and free lead to the peer, whatever other
allocators the program brings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

BINDING = re.compile(r"binding file (.+?) \[\d+\] to (.+?) \[\d+\]: normal symbol `(malloc|free)'")


def linker_environment(output: Path) -> tuple[tuple[str, str], ...]:
    return (("LD_BIND_NOW", "1"), ("LD_DEBUG", "bindings"), ("LD_DEBUG_OUTPUT", str(output)))


def bindings_complaint(texts: Iterable[str], library: Path, tool: Path) -> str:
    """Why the LIBRARY did not serve; empty if it did. The TOOL that starts the processes stays on its own
    allocator."""
    library = library.resolve()
    bound = False
    for text in texts:
        if f"binding file {tool} [" in text:
            continue
        for symbol in ("malloc", "free"):
            pairs = {(source, target) for source, target, name in BINDING.findall(text) if name == symbol}
            # A program that takes malloc's address lends others its own jump to it.
            served = {source for source, target in pairs if Path(target).resolve() == library}
            for source, target in sorted(pairs):
                if Path(target).resolve() != library and target not in served:
                    return f"{symbol} of {Path(source).name} is bound to {Path(target).name}"
            bound = bound or bool(served)
    return "" if bound else "the dynamic linker bound no malloc to it"
