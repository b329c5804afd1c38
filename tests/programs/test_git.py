"""git: history, packing by threads, a check of every object. What git starts is served too."""

from pathlib import Path

from trial import Side, Trial

WHO = {"NAME": "a", "EMAIL": "a@localhost", "DATE": "1700000000 +0000"}
IDENTITY = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in WHO.items()}


def test_git(trial: Trial) -> None:
    """Commits, an aggressive repack, a clone, fsck"""
    git = trial.program("git", "--version")

    def work(side: Side) -> tuple[str, str, str]:
        def ask(*arguments: str | Path) -> str:
            return side.run(
                git, *arguments, env={**IDENTITY, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(side.folder)}
            )

        ask("init", "--quiet", "--initial-branch", "main")
        for commit in range(5):
            for number in range(100):
                (side.folder / f"file{number}").write_text(f"{commit} {number}\n" * 200)
            ask("add", ".")
            ask("commit", "--quiet", "--message", f"commit {commit}")
        ask("gc", "--quiet", "--aggressive")
        ask("clone", "--quiet", "--no-local", ".", "copy")
        ask("-C", "copy", "fsck", "--full", "--strict")
        log = ask("-C", "copy", "log", "--patch", "--stat")
        return ask("-C", "copy", "rev-list", "--count", "HEAD"), ask("show", "HEAD~2:file42"), log

    count, old, log = trial.compare(work)
    assert count == "5\n"
    assert old.splitlines() == ["2 42"] * 200
    assert log.count("\ncommit ") + 1 == 5
