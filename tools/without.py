"""A test that commands are independent: delete some from a copy of the checkout, and test the rest.

`python -m tools.without [--tests] [NAME...]` deletes each command's folders in collbench/commands and tests/commands,
and those of its users in the list of tests/test_layers.py.  Then it tries help, every import, the linter, the type
checker and the collection of the tests; with `--tests` it runs the quick tests, for minutes.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.test_layers import OTHERS
from tools import ROOT

LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "20[0-9][0-9]*", "dist")
IMPORTS = """
from importlib import import_module
from tests.layers import ENTRIES, modules
for name in modules():
    if name not in ENTRIES:
        import_module(f"collbench.{name}")
"""
QUICK = ("-m", "not full and not machine and not deploy", "-n", "2", "--dist", "worksteal")
# Tests of pages and pictures, which concern all commands.
ABOUT_ALL = ("test_docs", "test_goldens", "test_lessons", "test_gallery", "test_pictures", "test_wheel", "test_project")


def commands() -> list[str]:
    return sorted(path.parent.name for path in (ROOT / "collbench" / "commands").glob("*/__init__.py"))


def with_users(name: str) -> set[str]:
    """Return a command and its users, direct and indirect."""
    gone = {name}
    for _ in OTHERS:
        gone |= {user for user, used in OTHERS.items() if used & gone}
    return gone


def copied(home: Path, gone: set[str]) -> None:
    """Write the checkout without these commands into a folder."""
    shutil.copytree(ROOT, home, ignore=LEFT_OUT, dirs_exist_ok=True)
    for name in gone:
        shutil.rmtree(home / "collbench" / "commands" / name)
        shutil.rmtree(home / "tests" / "commands" / name, ignore_errors=True)


def complaints(home: Path, gone: set[str], tests: bool, types: bool = False) -> Iterator[str]:
    """Yield the failures in such a copy: each command that failed, and the end of its output."""
    python = [sys.executable, "-P"]
    ignored = [f"--ignore=tests/{name}.py" for name in ABOUT_ALL]
    trials = (
        (*python, "-m", "collbench", "--help"),
        (*python, "-c", IMPORTS),
        (*python, "-m", "ruff", "check", "--quiet", "--no-cache", "."),
        (*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(QUICK if tests else ("--collect-only",)), *ignored),
    )
    # The stub is written again before types are checked.
    checked = ((*python, "-m", "tools.pages", "stubs"), (*python, "-m", "mypy", "--no-incremental")) if types else ()
    for words in (*trials, *checked):
        done = subprocess.run(
            words, cwd=home, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(home)}
        )
        if done.returncode:
            yield f"{' '.join(words[2:5])}: exit status {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}"
        listed = re.findall(r"^  (\S+)  +\S", done.stdout, re.MULTILINE) if "--help" in words else []
        if gone & {*listed}:
            yield f"--help still lists {', '.join(sorted(gone & {*listed}))}"


def main() -> int:
    tests, failed = "--tests" in sys.argv, 0
    for name in [word for word in sys.argv[1:] if word != "--tests"] or commands():
        gone = with_users(name)
        with tempfile.TemporaryDirectory() as folder:
            copied(Path(folder), gone)
            found = list(complaints(Path(folder), gone, tests, types=True))
        failed += bool(found)
        print(f"without {', '.join(sorted(gone))}: {'fails' if found else 'ok'}", *found, sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
