"""Real programs as workloads, each a file NAME.toml here: file.py has the format, task.py runs one."""
