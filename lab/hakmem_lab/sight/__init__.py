"""What a process says and shows of its memory: hakmem's books read from outside, beside what the kernel knows."""
