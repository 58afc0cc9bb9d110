"""Entry points of the command line: errors become one line and an exit status.

Ctrl-C before `main` runs prints Python's traceback, so this module imports only `sys`.
"""

import sys


def program() -> None:
    """Run the command with the name of the started program, for example `all_reduce_perf`."""
    sys.argv[1:1] = [sys.argv[0].rpartition("/")[2]]
    main()


def main(warning: str = "") -> None:
    """Run a command; print each error, and an earlier `warning`, as one line on stderr."""
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
        # PYTHONWARNINGS may hide the warnings of libraries, but not collbench's own.
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
    if warning:
        from collbench.host.launcher import launched

        if not (launched() or (0, 1))[0]:
            _warn(warning)


def _launched() -> tuple[int, int] | None:
    """Return this process's rank and the number of processes that run the command together; None for one process."""
    from collbench.presence import found

    arguments = sys.argv[1:]
    while arguments and arguments[0].partition("=")[0] == "--rendezvous":  # the only option before a command
        arguments = arguments[1 if "=" in arguments[0] else 2 :]
    record = found(arguments[0]) if arguments else None
    if not record or not record.together:
        return None
    from collbench.errors import UsageError
    from collbench.host.launcher import complaint, launched

    if wrong := complaint():
        raise UsageError(wrong)
    return launched()


def _leave(how: str) -> None:
    """Call the method `how` of the launcher watchdog, if it runs: other processes may wait for this one."""
    if watching := sys.modules.get("collbench.measure.launcher_watchdog"):
        getattr(watching.WATCHDOG, how)()


def _warn(message: Warning | str, *where: object, **more: object) -> None:
    sys.stderr.write(f"collbench: {message}\n")
