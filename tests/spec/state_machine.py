"""The rules of rules.h as a state machine for Hypothesis, which looks for a sequence of calls that breaks one, and shrinks
what it finds to a few steps.

    LD_PRELOAD=libfail_calls.so FAIL_ONLY=hakmem python state_machine.py LIBRARY SECONDS [SEED]

A second reading of the specification, written apart from model.c: what one overlooks the other may see. The process keeps
libc's malloc; hakmem is called by its own names.
"""

import ctypes
import mmap
import os
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from library import PTRDIFF_MAX, SIZE_MAX, UNTOUCHED, Lanes, Library, error_name, failing_kinds
from model import MUCH_BYTES, Block, BreachError, Model, demand, is_power_of_two

LANES = 3
STEPS = 30
EXAMPLES_AT_ONCE = 20
PAGE_BYTES = 64 * 1024
KERNEL_PAGE_BYTES = 4096
engine.MAX_SHRINKING_SECONDS = 20  # no setting says so; five minutes would be more than a test may take

# What a call gives to the bundle: a block, or none; many at once too.
Given = Block | MultipleResults[Block]


# Sizes as programs have them, at the edges of classes and pages, and none that can be.
small_sizes = st.integers(0, 2048)
sizes = st.one_of(
    small_sizes,
    st.integers(0, 1 << 17),
    st.builds(lambda log, more: max(0, (1 << log) + more), st.integers(3, 21), st.integers(-2, 2)),
    st.builds(lambda pages, more: (pages << 16) + more, st.integers(1, 40), st.integers(-1, 1)),
    st.sampled_from([PTRDIFF_MAX, PTRDIFF_MAX + 1, SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 65536, 1 << 47]),
)
counts = st.sampled_from([1, 2, 3, 8, 0, 1 << 32, SIZE_MAX, SIZE_MAX // 64])
alignments = st.one_of(
    st.sampled_from([1 << log for log in range(23)]),
    st.sampled_from([0, 3, 24, 100, 65535, 1 << 62, 1 << 63, SIZE_MAX]),
)
lanes = st.integers(0, LANES - 1)


class Machine(Model, RuleBasedStateMachine):
    """Blocks come into a bundle with each call that gives one, and leave it when they are freed or resized."""

    blocks = Bundle("blocks")

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes(LANES)
        self.library.call("collect")
        self.in_use_before = self.library.in_use_bytes()  # what a sequence lost is not the next one's fault

    @staticmethod
    def given(block: Block | None) -> Given:
        return multiple() if block is None else block

    # ---- allocating ------------------------------------------------------------------------------------

    @rule(target=blocks, lane=lanes, size=sizes)
    def malloc(self, lane: int, size: int) -> Given:
        address, error = self.lanes.run(lane, lambda: self.library.call("malloc", size))
        block = self.judge_new(f"malloc({size})", address, error, *self.due(size), size, 16)
        if isinstance(block, Block):
            good, _ = self.library.call("good_size", size)
            of_pages = block.usable > PAGE_BYTES - KERNEL_PAGE_BYTES or block.usable % mmap.PAGESIZE == 0
            demand(
                block.usable == good or (block.usable > good and of_pages),
                "good",
                f"good_size({size}) is {good}: {block}",
            )
        return self.given(block)

    @rule(target=blocks, lane=lanes, count=st.integers(1, 300), size=small_sizes)
    def malloc_many(self, lane: int, count: int, size: int) -> Given:
        """As many as fill stacks and buffers."""
        answers = self.lanes.run(lane, lambda: [self.library.call("malloc", size) for _ in range(count)])
        judged = [self.judge_new(f"malloc({size})", *answer, *self.due(size), size, 16) for answer in answers]
        return multiple(*(block for block in judged if isinstance(block, Block)))

    @rule(target=blocks, lane=lanes, count=counts, size=sizes)
    def calloc(self, lane: int, count: int, size: int) -> Given:
        total = count * size
        address, error = self.lanes.run(lane, lambda: self.library.call("calloc", count, size))
        if address and total <= MUCH_BYTES:
            demand(
                not any(ctypes.string_at(address, total)), "zero", f"calloc({count}, {size}) at {address:#x}"
            )
        return self.given(
            self.judge_new(f"calloc({count}, {size})", address, error, *self.due(total), total, 16)
        )

    @rule(target=blocks, lane=lanes, alignment=alignments, size=sizes)
    def aligned_alloc(self, lane: int, alignment: int, size: int) -> Given:
        address, error = self.lanes.run(lane, lambda: self.library.call("aligned_alloc", alignment, size))
        due = self.due(size, is_power_of_two(alignment))
        return self.given(
            self.judge_new(f"aligned_alloc({alignment}, {size})", address, error, *due, size, alignment)
        )

    @rule(target=blocks, lane=lanes, alignment=alignments, size=sizes)
    def memalign(self, lane: int, alignment: int, size: int) -> Given:
        address, error = self.lanes.run(lane, lambda: self.library.call("memalign", alignment, size))
        power = 1 << max(alignment - 1, 0).bit_length()
        due = self.due(size, power <= SIZE_MAX)
        return self.given(self.judge_new(f"memalign({alignment}, {size})", address, error, *due, size, power))

    @rule(target=blocks, lane=lanes, alignment=alignments, size=sizes)
    def posix_memalign(self, lane: int, alignment: int, size: int) -> Given:
        stored, returned, error = self.lanes.run(lane, lambda: self.library.posix_memalign(alignment, size))
        self.check_errno("posix_memalign", error)
        if returned != 0:
            demand(
                stored == 1,
                "says_why",
                f"posix_memalign returned {error_name(returned)} and stored {stored:#x}",
            )
            stored = 0
        due = self.due(size, is_power_of_two(alignment) and alignment % 8 == 0)
        error = returned or error
        return self.given(
            self.judge_new(f"posix_memalign({alignment}, {size})", stored, error, *due, size, alignment)
        )

    @rule(target=blocks, lane=lanes, name=st.sampled_from(["valloc", "pvalloc"]), size=sizes)
    def valloc(self, lane: int, name: str, size: int) -> Given:
        address, error = self.lanes.run(lane, lambda: self.library.call(name, size))
        block = self.judge_new(f"{name}({size})", address, error, *self.due(size), size, mmap.PAGESIZE)
        if name == "pvalloc" and isinstance(block, Block):
            demand(block.usable % mmap.PAGESIZE == 0, "enough", f"pvalloc({size}) gives {block}")
        return self.given(block)

    # ---- resizing --------------------------------------------------------------------------------------

    def judge_resized(self, call: str, block: Block, size: int, address: int, error: int) -> Given:
        due_error, cause = self.due(size)
        if size == 0:
            demand(address == 0, "resized", f"{call} gives {address:#x}")
            self.check_errno(call, error)
            self.leave_out(block)
            return multiple()
        if address == 0:
            demand(due_error != 0 or size > block.usable, "shrinks", f"{call} of {block}")
            self.check_refusal(call, error, due_error, size, 16)
            demand(block.holds(block.address, block.usable), "stays", f"the contents of {block}")
            return block
        self.check_errno(call, error)
        demand(due_error == 0, cause, f"{call} gives {address:#x}")
        demand(
            block.holds(address, min(size, block.usable)), "kept", f"the contents of {block} at {address:#x}"
        )
        self.leave_out(block)
        return self.take_in(address, size, 16)

    @rule(target=blocks, lane=lanes, block=consumes(blocks), size=sizes)
    def realloc(self, lane: int, block: Block, size: int) -> Given:
        self.check(block)
        answer = self.lanes.run(lane, lambda: self.library.call("realloc", block.address, size))
        return self.judge_resized(f"realloc to {size}", block, size, *answer)

    @rule(target=blocks, lane=lanes, block=consumes(blocks), count=counts, size=sizes)
    def reallocarray(self, lane: int, block: Block, count: int, size: int) -> Given:
        self.check(block)
        answer = self.lanes.run(lane, lambda: self.library.call("reallocarray", block.address, count, size))
        return self.judge_resized(f"reallocarray to {count} * {size}", block, count * size, *answer)

    @rule(target=blocks, lane=lanes, size=sizes)
    def realloc_of_null(self, lane: int, size: int) -> Given:
        address, error = self.lanes.run(lane, lambda: self.library.call("realloc", None, size))
        return self.given(self.judge_new(f"realloc(NULL, {size})", address, error, *self.due(size), size, 16))

    @rule(lane=lanes, block=blocks, size=sizes)
    def try_expand(self, lane: int, block: Block, size: int) -> None:
        self.check(block)
        got, error = self.lanes.run(lane, lambda: self.library.call("try_expand", block.address, size))
        usable = self.usable_size(block.address)
        self.check_errno("try_expand", error)
        if got == 0:
            demand(size > block.usable, "expands", f"to {size} of {block}")
            demand(usable == block.usable, "stays", f"{usable} bytes, and before {block}")
            return
        demand(
            got == usable and got >= max(size, block.usable),
            "expands",
            f"to {size} gives {got} of {usable}: {block}",
        )
        demand(block.holds(block.address, block.usable), "kept", f"the contents of {block}")
        self.leave_out(block)
        longer = self.take_in(block.address, block.asked, block.alignment)
        block.usable, block.key = longer.usable, longer.key
        self.in_use[block.address] = block

    # ---- freeing ---------------------------------------------------------------------------------------

    def release(self, lane: int, block: Block, how: str) -> None:
        arguments = {
            "free": (block.address,),
            "free_sized": (block.address, block.asked),
            "free_aligned_sized": (block.address, block.alignment, block.asked),
        }[how]
        self.check(block)
        self.leave_out(block)
        _, error = self.lanes.run(lane, lambda: self.library.call(how, *arguments))
        self.check_errno(how, error)

    @rule(
        lane=lanes, block=consumes(blocks), how=st.sampled_from(["free", "free_sized", "free_aligned_sized"])
    )
    def free(self, lane: int, block: Block, how: str) -> None:
        self.release(lane, block, how)

    @rule(lane=lanes, some=st.lists(consumes(blocks), min_size=10, max_size=300))
    def free_many(self, lane: int, some: list[Block]) -> None:
        for block in some:
            self.release(lane, block, "free")

    # ---- everything else -------------------------------------------------------------------------------

    @rule(lane=st.integers(1, LANES - 1))
    def end_thread(self, lane: int) -> None:
        self.lanes.end(lane)

    @rule(lane=lanes)
    def collect(self, lane: int) -> None:
        _, error = self.lanes.run(lane, lambda: self.library.call("collect"))
        self.check_errno("collect", error)

    @rule()
    def trim(self) -> None:
        trimmed, error = self.library.call("malloc_trim", 0)
        self.check_errno("malloc_trim", error)
        demand(trimmed in (0, 1), "trims", str(trimmed))

    @rule(kind=st.integers(0, failing_kinds() - 1), at=st.integers(1, 20), ever=st.booleans())
    def fail(self, kind: int, at: int, ever: bool) -> None:
        self.may_refuse = True
        self.library.fail(kind, at, ever)

    @rule()
    def lift_failures(self) -> None:
        self.may_refuse = False
        self.library.lift_failures()

    @rule(size=sizes, address=st.integers(1, SIZE_MAX))
    def ask(self, size: int, address: int) -> None:
        good, _ = self.library.call("good_size", size)
        if size > PTRDIFF_MAX:
            demand(good == 0, "too_large", f"good_size({size}) is {good}")
        elif good or size <= MUCH_BYTES:
            again, _ = self.library.call("good_size", good)
            demand(
                good >= size and again == good, "good", f"good_size({size}) is {good}, and of that {again}"
            )
        power, _ = self.library.call("memalignment", address)
        demand(power == address & -address, "power", f"{power} for {address:#x}")
        nothing = [self.library.call(name, None)[0] for name in ("usable_size", "memalignment")]
        expanded, _ = self.library.call("try_expand", None, size)
        _, error = self.library.call("free", None)
        demand([*nothing, expanded] == [0, 0, 0], "null", f"{nothing}, {expanded}")
        demand(error == UNTOUCHED, "errno_kept", f"free(NULL) set it to {error}")

    @rule()
    def fork(self) -> None:
        child = os.fork()
        if child == 0:
            self.live_as_child()
        _, status = os.waitpid(child, 0)
        demand(status == 0, "child", f"it ended with status {status:#x}")

    def live_as_child(self) -> None:
        """This thread only, and the blocks of all. Ends the process."""
        status = 1
        try:
            self.lanes = Lanes(1)
            for block in list(self.in_use.values()):
                self.check(block)
                self.release(0, block, "free")
            for size in range(0, 2000, 100):
                self.malloc(0, size)
            for block in self.in_use.values():
                self.check(block)
            status = 0
        except BaseException as broken:
            os.write(2, f"in the child: {broken}\n".encode())
        finally:
            os._exit(status)

    @invariant()
    def newest_blocks_are_as_they_were(self) -> None:
        for block in list(self.in_use.values())[-8:]:
            self.check(block)

    def teardown(self) -> None:
        self.lift_failures()
        if isinstance(sys.exc_info()[1], BreachError):
            return  # what follows would hide it
        for block in list(self.in_use.values()):
            self.release(0, block, "free")
        for lane in range(1, LANES):
            self.lanes.end(lane)
        self.library.call("collect")
        in_use = self.library.in_use_bytes() - self.in_use_before
        demand(in_use == 0, "conserved", f"{in_use} bytes are")


def main(library: str, seconds: str, first_seed: str = "1") -> int:
    Machine.library = Library(Path(library))
    end = time.monotonic() + float(seconds)
    number, examples = int(first_seed), 0
    few = settings(
        max_examples=EXAMPLES_AT_ONCE,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        print_blob=False,
        report_multiple_bugs=False,
    )
    while time.monotonic() < end:
        run_state_machine_as_test(seed(number)(Machine), settings=few)
        number, examples = number + 1, examples + EXAMPLES_AT_ONCE
    print(f"{examples} sequences of at most {STEPS} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
