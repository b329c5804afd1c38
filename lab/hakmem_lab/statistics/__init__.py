"""From samples to estimates, intervals and verdicts. Knows nothing of allocators."""
