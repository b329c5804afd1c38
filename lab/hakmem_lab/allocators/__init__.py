"""The allocators that are measured: where they come from, and the proof that they serve."""
