"""Names for addresses, from what the tools say."""

from __future__ import annotations

from hakmem_lab.studies.symbols import Variable, code_read, variable_find, variables_read

TOLD = """\
0x0000000000001a2c
os_lock_try
/somewhere/src/os/os.h:173
span_take.part.0
/somewhere/src/span/span.c:230 (discriminator 2)
0x0000000000002000
main
??:0
"""


def test_the_frame_in_a_source_is_named_not_that_in_a_header() -> None:
    assert code_read(TOLD) == ["span_take, span/span.c:230", "main, ??:0"]


def test_a_function_that_was_inlined_is_named_with_where() -> None:
    told = "0x1\nget\n/x/src/heap/footprint.c:10\nfootprint_add\n/x/src/heap/footprint.c:17\n"
    assert code_read(told) == ["get in footprint_add, heap/footprint.c:10"]


def test_only_data_are_variables() -> None:
    told = "0000000000042960 0000000000000008 b in_use\n0000000000001000 0000000000000010 t refill\n0000000000002000 U x\n"
    assert [(one.name, one.start, one.bytes) for one in variables_read(told)] == [("in_use", 0x42960, 8)]


def test_a_word_is_named_after_what_lies_in_it_and_not_before_it() -> None:
    half, whole, flag = Variable(0x14, 4, "half"), Variable(0x18, 8, "whole"), Variable(0x23, 1, "flag")
    found = [variable_find((half, whole, flag), word) for word in (0x08, 0x10, 0x18, 0x20, 0x28)]
    assert found == [None, "half", "whole", "flag", None]
