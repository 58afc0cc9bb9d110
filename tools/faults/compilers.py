"""Trials with compilers that hang, fail, lie, or print bytes that are no text."""

from collections.abc import Iterator

from tools.faults.trial import BAD, SHORT, USAGE, Done, Scene, Trial

_OUT = 'while [ "$1" != -o ]; do shift; done; out="$2"'
PROGRAMS = {  # by name: the shell's words for --version, and for a compilation
    "hangs in a child": ("echo c++ 1", "sleep 1000 & wait"),
    "lies": ("echo c++ 1", "exit 0"),
    "writes half a library": ("echo c++ 1", f'c++ "$@"; {_OUT}; head -c 5000 "$out" >"$out.x"; mv "$out.x" "$out"'),
    "fails with bytes": ("echo c++ 1", "printf '\\377\\376\\200 error: \\001\\033[31m\\377\\n' >&2; exit 1"),
    "says too much": ("yes | head -c 3000000", "yes error: | head -c 3000000 >&2; exit 1"),
    "is killed": ("echo c++ 1", "kill -9 $$"),
}


def written(version: str, compiling: str) -> str:
    return f'#!/bin/sh\ncase "$*" in *--version*) {version};; *) {compiling};; esac\n'


def short(scene: Scene, done: Done) -> str:
    """Return a complaint unless the error is one short line, whatever the compiler printed."""
    lines = [line for line in done.errors.splitlines() if "error: " in line]
    if not lines:
        return f"nothing said: {done.errors[-300:]!r}"
    return f"a line of {len(lines[0])} characters" if len(lines[0]) > 1000 else ""


def trials() -> Iterator[Trial]:
    for name, (version, compiling) in PROGRAMS.items():

        def prepare(scene: Scene, text: str = written(version, compiling)) -> None:
            program = scene.folder / "cxx"
            program.write_text(text)
            program.chmod(0o755)

        variables = {"CXX": "@/cxx", "COLLBENCH_CACHE": "@/home/cache"}
        yield Trial(
            f"a compiler that {name}", SHORT, (USAGE,), prepare=prepare, variables=variables, check=short, limit=60
        )
    variables = {"CXX": "no-such-compiler", "COLLBENCH_CACHE": "@/home/cache"}
    yield Trial("a compiler that is not there", SHORT, (USAGE, BAD), variables=variables)
