"""The command line: how a command begins and, whatever happens, ends: with an exit status and at most one line.

Until `main` runs, Ctrl-C is a traceback of Python's, so this module imports nothing that is not there already.
"""

import sys

TOGETHER = ("check", "sweep", "verify", "explain", "step stragglers", "step strategies")
"""The commands that the processes of an outside launcher carry out together; all others each process does alone."""


def program() -> None:
    """`all_reduce_perf` and its like, by the name that the program was started by."""
    sys.argv[1:1] = [sys.argv[0].rpartition("/")[2]]
    main()


def main() -> None:
    """Run a command; every error becomes one line on stderr and an exit status."""
    from collbench.host.isolation import isolate

    isolate()
    from collbench.host import signals

    signals.end_at_once()
    try:
        status = _run()
        sys.stdout.flush()
    except BaseException as error:
        message, status = _ending(error)
        if message:
            from collbench.host import sanitize

            sys.stderr.write(f"collbench: error: {sanitize.message(message)}\n")
            sys.stderr.flush()
        _leave("leave")
    _leave("leave_hanging")
    sys.exit(status)


def _run() -> int:
    import warnings

    from collbench.cli import _process
    from collbench.errors import Notice, UsageError

    _process.prepare()
    warnings.showwarning = _warn
    warnings.simplefilter("default", Notice)  # whatever PYTHONWARNINGS says of the warnings of libraries
    joined = None
    names = (*sys.argv[1:2], " ".join(sys.argv[1:3]))
    if any(name in TOGETHER or name.endswith("_perf") for name in names):
        from collbench.host.launcher import complaint, launched

        if wrong := complaint():
            raise UsageError(wrong)
        joined = launched()
    with _process.agreed(joined):
        from collbench.cli.group import group

        return group.main(sys.argv[1:] or ["--help"], prog_name="collbench", standalone_mode=False) or 0


def _ending(error: BaseException) -> tuple[str, int]:
    """Return the message for an error, empty where nothing is left to say, and the exit status."""
    from collbench.cli import _process
    from collbench.host import signals

    if isinstance(error, KeyboardInterrupt):
        return "interrupted", signals.status(error)
    if isinstance(error, SystemExit):
        return "", error.code if isinstance(error.code, int) else 1
    if isinstance(error, _process.Unwritable):
        return ("", 141) if error.quietly else (str(error), 1)
    if isinstance(error, BrokenPipeError):
        return "", 141
    return _process.on_purpose(error) or (_process.unforeseen(error), 1)


def _leave(how: str) -> None:
    """Tell the watchdog of a launcher's processes that this process leaves: others may wait for it."""
    if watching := sys.modules.get("collbench.measure.launcher_watchdog"):
        getattr(watching.WATCHDOG, how)()


def _warn(message: Warning | str, *where: object, **more: object) -> None:
    """Print a warning in one line, without its place in the code, which is of no use to the user."""
    sys.stderr.write(f"collbench: {message}\n")
