"""Standard streams that are closed, full, read by nobody, or of an encoding that lacks what is printed."""

from collections.abc import Iterator

from tools.faults.trial import BAD, GOOD, SHORT, USAGE, Done, Scene, Trial

COMMANDS = {
    "help": ("--help",),
    "list": ("list",),
    "topo": ("topo", "--on", "cpu"),
    "predict": ("predict", "aws-p5"),
    "version": ("--version",),
    "usage": ("frobnicate",),
    "sweep": SHORT,
    "verify": ("verify", "--on", "cpu", "--op", "broadcast", "-d", "float", "--impl", "mpi"),
}
NEEDS_RANKS = ("sweep", "verify")
CHANGES = {  # by name: the shell's words, and whether standard output is lost
    "stdout closed": ('exec "$@" >&-', True),
    "stdout full": ('exec "$@" >/dev/full', True),
    "stderr closed": ('exec "$@" 2>&-', False),
    "stderr full": ('exec "$@" 2>/dev/full', False),
    "both closed": ('exec "$@" >&- 2>&-', True),
    "both full": ('exec "$@" >/dev/full 2>&1', True),
    "all closed": ('exec "$@" <&- >&- 2>&-', True),
    "stdin closed": ('exec "$@" <&-', False),
}
ENCODINGS = {
    "Latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ASCII": {"PYTHONIOENCODING": "ascii"},
    "C locale": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}


def quiet(scene: Scene, done: Done) -> str:
    """After `| head`, not a word of it."""
    return f"printed {done.errors[-200:]!r}" if "error" in done.errors.lower() else ""


def trials() -> Iterator[Trial]:
    for name, words in COMMANDS.items():
        right = USAGE if name == "usage" else GOOD
        for change, (shell, lost) in CHANGES.items():
            allowed = (BAD,) if lost and name != "usage" else (right,)
            if name == "verify" and lost:
                allowed = (BAD, GOOD)
            yield Trial(f"{name} with {change}", words, allowed, shell=shell)
        for encoding, variables in ENCODINGS.items():
            yield Trial(f"{name} in {encoding}", words, (right,), variables=variables)
        if name in ("usage", "version", "verify"):
            continue
        shell = '( "$@"; echo $? >status ) | head -n 1 >/dev/null; exit $(cat status)'
        yield Trial(f"{name} | head", words, (141, GOOD), shell=shell, check=quiet)
        yield Trial(f"{name} | true", words, (141, GOOD), shell=shell.replace("head -n 1", "true"), check=quiet)
