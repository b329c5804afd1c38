"""The figures that the project starts from: published results of an earlier allocator of this design."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Then:
    what: str
    earlier_mops: float
    system_mops: float | None
    """glibc's figure, if it was published."""
    row: str
    """The corresponding workload here."""
    remark: str = ""


STARTING_FIGURES = (
    Then("random_mixed 128 B", 59, 69, "one size, 128 B"),
    Then("random_mixed 256 B", 70, 76, "one size, 256 B"),
    Then("random_mixed 512 B", 68, 80, "one size, 512 B"),
    Then("random_mixed 1024 B", 65, 45, "one size, 1024 B"),
    Then("random_mixed 16-1024 B, 256 slots", 54, None, "random mix, 256 slots"),
    Then("random_mixed 16-1024 B, 400 slots", 34, None, "random mix, 400 slots"),
    Then("mid_mt_gap 1-8 KiB", 41, None, "2 threads, 1-8 KiB"),
    Then("mid_large_mt 8-32 KiB", 2.1, 8.7, "2 threads, 8-32 KiB"),
    Then("larson, 1 thread, 8-128 B", 2.7, None, "larson, 1 thread, 8-128 B", "crashed at 4 threads"),
    Then("tiny_hot 16 B", 120, 104, "tiny and hot, 16 B", "the lowest of 120 to 164"),
    Then("tiny_hot 128 B", 120, 104, "tiny and hot, 128 B", "the lowest of 120 to 164"),
    Then("fixed 256 B", 54.4, 102.1, "one size, 256 B"),
)
