"""The command line: how a command begins and, whatever happens, ends: with an exit status and at most one line.

Until `main` runs, Ctrl-C is a traceback of Python's, so this module imports nothing that is not there already.
"""

import sys


def program() -> None:
    """`all_reduce_perf` and its like, by the name that the program was started by."""
    sys.argv[1:1] = [sys.argv[0].rpartition("/")[2]]
    main()


def main(warning: str = "") -> None:
    """Run a command; every error, and a warning of what ran before it, becomes one line on stderr."""
    from collbench.host.isolation import isolate

    warning = isolate() or warning
    from collbench.host import signals

    signals.end_at_once()
    try:
        import warnings

        from collbench.cli import _process
        from collbench.errors import Notice

        _process.prepare()
        warnings.showwarning = _warn
        _warn_once(warning)
        # Whatever PYTHONWARNINGS says of the warnings of libraries, collbench's own are printed.
        warnings.simplefilter("default", Notice)
        with _process.agreed(_launched()):
            from collbench.cli.group import group

            status = group.main(sys.argv[1:] or ["--help"], prog_name="collbench", standalone_mode=False) or 0
        sys.stdout.flush()
    except BaseException as error:
        from collbench.cli import _process

        message, status = _process.ending(error)
        if message:
            from collbench.host import sanitize

            sys.stderr.write(f"collbench: error: {sanitize.message(message)}\n")
            sys.stderr.flush()
        _leave("leave")
    if requests := sys.modules.get("collbench.requests.sweeps"):
        requests.remove_unused()
    _leave("leave_hanging")
    sys.exit(status)


def _warn_once(warning: str) -> None:
    """Print a warning, if there is one, in one process of those that a launcher started."""
    if warning:
        from collbench.host.launcher import launched

        if not (launched() or (0, 1))[0]:
            _warn(warning)


def _launched() -> tuple[int, int] | None:
    """Return rank and number of the processes that carry out this command together; None where there is but one."""
    from collbench.presence import found

    words = sys.argv[1:]
    while words and words[0].partition("=")[0] == "--rendezvous":  # the one option that may stand before the command
        words = words[1 if "=" in words[0] else 2 :]
    record = found(words[0]) if words else None
    if not record or not record.together:
        return None
    from collbench.errors import UsageError
    from collbench.host.launcher import complaint, launched

    if wrong := complaint():
        raise UsageError(wrong)
    return launched()


def _leave(how: str) -> None:
    """Tell the watchdog of a launcher's processes that this process leaves: others may wait for it."""
    if watching := sys.modules.get("collbench.measure.launcher_watchdog"):
        getattr(watching.WATCHDOG, how)()


def _warn(message: Warning | str, *where: object, **more: object) -> None:
    """Print a warning in one line, without its place in the code, which is of no use to the user."""
    sys.stderr.write(f"collbench: {message}\n")
