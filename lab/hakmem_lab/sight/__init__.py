"""What a process shows of its memory: hakmem's books read from outside, and what the kernel knows."""
