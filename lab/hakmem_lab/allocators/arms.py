"""What a user writes for an allocator: a name, the path of a library, or hakmem of another build, or with options.

    mimalloc3     /opt/lib/libfoo.so     hakmem:decay=never,profile=small     hakmem@pgo     hakmem@HEAD~3:decay=never
    hakmem+static

Each becomes a peer. Whether a library can be loaded and provides malloc is tried immediately, with a program that
allocates; whether it serves is proved in every later run.
"""

from __future__ import annotations

import difflib
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hakmem_lab.allocators import builds, elf, forms
from hakmem_lab.allocators.peers import Peer, PeerStore
from hakmem_lab.errors import LabError
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.runner import Arm, Conditions, environment_make, workload_run
from hakmem_lab.measure.stage import Stage
from hakmem_lab.processes import program_run

CONFIGURED = "hakmem"
PREFIX = "HAKMEM_"
NO_OPTIONS = ("conf", "proof", "show_options", "no_install", "build_dir", "strict")
"""What else has the prefix, so that the library does not refuse it."""
CHECK_SECONDS = 30
NEAREST = re.compile(
    rf"(?P<mistake>{PREFIX}(?:\w+=)?(?P<word>.*?) is .*); the nearest is (?:{PREFIX})?(?P<near>\w+).*"
)
MESSAGE, REPORT = "hakmem: ", "hakmem: statistics of "
"""How lines of hakmem's on standard error begin: all, and those that head what the option stats asks for."""
TRIAL = ("random_mixed", ("1000", "100", "1"))


def arm_parse(text: str, store: PeerStore) -> Peer:
    """The peer that TEXT means; an error in one line if there is none."""
    name, colon, options = text.partition(":")
    if is_path(text):
        return _library_peer(text)
    if not colon:
        return _named_peer(text, store)
    if name != CONFIGURED and not name.startswith(builds.MARK):
        raise LabError(f"'{text}': only {CONFIGURED} takes options here, as {CONFIGURED}:decay=never")
    return options_peer(_named_peer(name, store), options)


def is_path(text: str) -> bool:
    """Whether TEXT means a library's path, which may hold a colon; an option's value may be a path, too."""
    if text.partition(":")[0] == CONFIGURED or text.startswith((builds.MARK, forms.MARK)):
        return False
    return "/" in text or text.endswith(".so")


def arm_shown(text: str) -> str:
    """TEXT as a report may show it: of a library's path the name."""
    return Path(text).name if is_path(text) else text


def arms_parse(texts: Sequence[str], store: PeerStore) -> list[Peer]:
    """One for each name in TEXTS, without repeats. Two peers with one name are an error, because a report could not
    distinguish them."""
    peers = [arm_parse(text, store) for text in dict.fromkeys(texts)]
    known: set[str] = set()
    for peer in peers:
        if peer.name in known:
            raise LabError(f"two allocators are named {peer.name}: compare them one after the other")
        known.add(peer.name)
    return peers


def _named_peer(text: str, store: PeerStore) -> Peer:
    if text in store.names:
        return store.obtain(text)
    if text.startswith(forms.MARK):
        return forms.form_peer(store.checkout, text.removeprefix(forms.MARK), store.obtain("hakmem").version)
    if text.startswith(builds.MARK):
        library = builds.library_of(store.checkout, text.removeprefix(builds.MARK))
        return Peer(text, "", library, elf.build_id(library), origin="this checkout")
    near = difflib.get_close_matches(text, store.names, n=1)
    hint = f", did you mean {near[0]}?" if near else f"; known: {', '.join(store.names)}, or a library's path"
    raise LabError(f"there is no allocator '{text}'{hint}")


def _library_peer(text: str) -> Peer:
    path = Path(text).expanduser()
    if not path.is_file():
        raise LabError(f"{text}: there is no such library")
    try:
        return Peer(path.name, "given by path", path.resolve(), elf.build_id(path))
    except OSError as error:
        raise LabError(f"{text} cannot be read: {error.strerror}") from error


def options_peer(hakmem: Peer, options: str) -> Peer:
    """OPTIONS as a user writes them, name=value,...; the same library, with another environment. Each is a variable of
    its own: a list in HAKMEM_CONF would be weaker than such variables of the user's."""
    settings = []
    for setting in options.split(","):
        name, equals, value = (part.strip() for part in setting.partition("="))
        if not (name and equals and value):
            raise LabError(f"'{setting}' is not an option with a value, as in decay=never")
        if name.lower() in NO_OPTIONS:
            raise LabError(f"'{setting}': {name} is not an option of hakmem")
        settings.append((f"{PREFIX}{name.upper()}", value))
    return replace(hakmem, name=f"{hakmem.name}:{options}", environment=(*hakmem.environment, *settings))


def peer_stage(stage: Stage, peer: Peer, folder: str, name: str | None = None) -> Peer:
    """From a copy in a FOLDER whose name the dynamic linker accepts (no colon, no space); under another NAME if one
    is given. Options that hakmem does not understand are an error."""
    staged = replace(stage.peer(peer, folder), name=name or peer.name)
    _options_check(stage, staged)
    return staged


def arm_stage(stage: Stage, peer: Peer, folder: str, name: str | None = None) -> Peer:
    """As peer_stage; it was also seen to serve a program."""
    staged = peer_stage(stage, peer, folder, name)
    program, arguments = TRIAL
    workload_run(stage.program(program), arguments, Arm(staged), Conditions(0, 0, cpus_allowed()))
    return staged


def _options_check(stage: Stage, peer: Peer) -> None:
    """hakmem reports on standard error what it does not understand, and continues with its defaults."""
    if not any(name.startswith(PREFIX) for name, _ in peer.environment):
        return
    command = [str(stage.program("no_alloc")), "1", "1"]
    try:
        done = program_run(command, CHECK_SECONDS, env=environment_make(Arm(peer), 0, preload=True))
    except subprocess.TimeoutExpired:
        raise LabError(f"{peer.name}: a program on it did not end within {CHECK_SECONDS:g} s") from None
    lines = [line for line in done.errors.splitlines() if line.startswith(MESSAGE)]
    complaints = [line for line in lines if not line.startswith(REPORT)]
    if complaints:
        raise LabError(f"{peer.name}: {refusal_text(complaints[0])}")
    if done.status != 0:
        raise LabError(f"{peer.name}: a program on it exited with {done.status}{done.said}")


def refusal_text(said: str) -> str:
    """What hakmem SAID about a setting that it ignores, if that is an error. The name with the fewest edits is
    reported only if it is similar to what was written."""
    text = said.removeprefix(MESSAGE).replace(" and is ignored", "")
    advised = NEAREST.fullmatch(text)
    if advised is None or difflib.get_close_matches(
        advised["word"].lower(), [advised["near"].lower()], 1, 0.5
    ):
        return text
    return advised["mistake"]
