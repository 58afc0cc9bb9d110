"""Trials with standard streams that are closed, full, without a reader, or with an encoding that lacks characters."""

from collections.abc import Iterator

from tools.faults.trial import BAD, GOOD, SHORT, USAGE, Done, Scene, Trial

COMMANDS = {"list": ("list",), "usage": ("frobnicate",), "sweep": SHORT}
CHANGES = {  # by name: the shell's words, and whether standard output is lost
    "stdout closed": ('exec "$@" >&-', True),
    "stdout full": ('exec "$@" >/dev/full', True),
    "stderr closed": ('exec "$@" 2>&-', False),
    "stderr full": ('exec "$@" 2>/dev/full', False),
    "both full": ('exec "$@" >/dev/full 2>&1', True),
    "all closed": ('exec "$@" <&- >&- 2>&-', True),
}
ENCODINGS = {
    "ASCII": {"PYTHONIOENCODING": "ascii"},
    "C locale": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}


def quiet(scene: Scene, done: Done) -> str:
    """Return a complaint if the command prints an error after `| head`."""
    return f"printed {done.errors[-200:]!r}" if "error" in done.errors.lower() else ""


def trials() -> Iterator[Trial]:
    for name, words in COMMANDS.items():
        right = USAGE if name == "usage" else GOOD
        for change, (shell, lost) in CHANGES.items():
            if name != "sweep" and change not in ("stdout full", "all closed"):
                continue
            allowed = (BAD,) if lost and name != "usage" else (right,)
            yield Trial(f"{name} with {change}", words, allowed, shell=shell)
        for encoding, variables in ENCODINGS.items() if name == "sweep" else ():
            yield Trial(f"{name} in {encoding}", words, (right,), variables=variables)
        if name == "usage":
            continue
        shell = '( "$@"; echo $? >status ) | head -n 1 >/dev/null; exit $(cat status)'
        yield Trial(f"{name} | head", words, (141, GOOD), shell=shell, check=quiet)
