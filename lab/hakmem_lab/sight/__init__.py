"""What a process shows of its memory: hakmem's metadata read from outside, and what the kernel knows."""
