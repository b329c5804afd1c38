from __future__ import annotations

from pathlib import Path

import pytest
from hakmem_lab.allocators import elf
from hakmem_lab.errors import LabError


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", elf.MARK, elf.MARK + bytes(60)], ids=["empty", "script", "mark", "zeros"]
)
def test_what_is_no_program_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "random_mixed"
    path.write_bytes(content)
    with pytest.raises(LabError, match=r"^random_mixed is no program or library: "):
        elf.compilers(path)
    with pytest.raises(LabError, match=r"^random_mixed is not a shared object: "):
        elf.build_id(path)
