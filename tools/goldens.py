"""Compare what users see of two commits: tables, JSON, CSV, reports, plots, error messages, predicted times to the digit.

`python -m tools.goldens BASE [HEAD]` runs the commands of goldens.toml on the source of both commits, prints a unified
diff of what differs, and exits with 1 if anything does; HEAD is the working tree unless a commit is named.  Nothing is
measured.  Each commit reads its own `results/`, so a change of the run file's format shows only if what is printed of
a run changes.  The table of a measured sweep is not among the outputs, since no command prints it again: the library's
rows, `check --run`, and the report have its numbers.  Signals, full disks and kills are tried by tools/faults.

A golden is one file of the output folder: commands that follow one another in an empty folder, each with standard
output, standard error and exit status, then the files that they left there.  SVG files are reduced to texts, coordinates
and styles, HTML to its text and the number of figures; run files and bitmaps are named only.  What differs from one
execution to the next (paths, the present day, the version) is replaced by a word.
"""

import argparse
import contextlib
import datetime
import difflib
import gc
import json
import os
import pkgutil
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")
SIDES = ("base", "head")  # of equal length, so that paths of both break lines alike
WIDTHS = (80, 120)
LIMIT = 120  # seconds for a command
DIFF_LINES = 40  # of a golden that are printed
FOLDERS_OF_LOGS = ("logs", "reports")
ONLY_NAMED = {".jsonl", ".png", ".pdf", ".parquet"}
LARGE_LIBRARIES = ("numpy", "scipy.optimize", "scipy.stats", "matplotlib.pyplot", "jinja2", "msgspec", "click")


class Golden(NamedTuple):
    """Commands whose output is one file: run by a shell's words, on a terminal of that width or, for 0, in a pipe."""

    name: str
    commands: list[str]
    width: int = 0


# --- Which commands there are ---


def all_goldens(tree: Path, logs: Path | None) -> list[Golden]:
    """Return the goldens of goldens.toml, with runs and systems filled in that a source tree has."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    runs = sorted(path.parent.relative_to(tree / "results") for path in (tree / "results").rglob("run.jsonl"))
    systems = sorted(path.stem for path in (tree / "collbench").rglob("presets/*.toml"))
    goldens = [*_of_section("", listed["commands"], {})]
    for run in runs:
        goldens += _of_section(f"runs/{run}/", listed["each-run"], {"RUN": f"results/{run}"})
    for system in systems:
        goldens += _of_section(f"systems/{system}/", listed["each-system"], {"SYSTEM": system})
    for folder in FOLDERS_OF_LOGS if logs else ():
        for path in sorted((logs / folder).glob("*")):
            if path.suffix in (".log", ".txt", ".json", ".prom") and path.name != "index.json":
                words = {"LOG": shlex.quote(f"{folder}/{path.name}"), "GIVEN": _given(path)}
                goldens += _of_section(f"{folder}/{path.name}/", listed["each-log"], words)
    return goldens


def _of_section(prefix: str, section: dict[str, dict[str, list[str]]], words: dict[str, str]) -> Iterator[Golden]:
    for kind, widths in (("terminal", WIDTHS), ("pipe", (0,))):
        for name, commands in section.get(kind, {}).items():
            for width in widths:
                text = [re.sub(r"\b[A-Z]+\b", lambda match: words.get(match[0], match[0]), line) for line in commands]
                yield Golden(f"{prefix}{name}{f'@{width}' if width else ''}", text, width)


def _given(log: Path) -> str:
    """Return what must be said beside a log, as the index of its folder has it."""
    index = log.with_name("index.json")
    entries = json.loads(index.read_text(encoding="utf-8")) if index.exists() else []
    return next((shlex.join(entry["args"]) for entry in entries if entry["id"] == log.stem), "")


# --- Two source trees, side by side ---


def main() -> int:
    """Run the goldens on both commits and compare them."""
    parser = argparse.ArgumentParser("python -m tools.goldens", description=__doc__.partition("\n")[0])
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    parser.add_argument("head", metavar="HEAD", nargs="?", help="another commit (default: the working tree)")
    parser.add_argument("--only", metavar="TEXT", action="append", help="goldens with this in their names; repeatable")
    parser.add_argument("--list", action="store_true", help="print the names of the goldens and do nothing else")
    parser.add_argument("--logs", metavar="FOLDER", type=Path, default=ROOT.parent / "shared",
                        help="logs of other tools, in its folders logs and reports (default: ../shared)")  # fmt: skip
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="keep the outputs there, in base/ and head/")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="processes at once (default: 2)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the folders of both commits are removed

    logs = options.logs.resolve() if any((options.logs / name).is_dir() for name in FOLDERS_OF_LOGS) else None
    if not logs:
        print(f"left out: imports of logs, since {options.logs} has neither logs nor reports; give --logs FOLDER")
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="goldens-"))).resolve()
        trees = [stack.enter_context(source_tree(commit, scratch)) for commit in (options.base, options.head)]
        goldens = [
            golden
            for golden in all_goldens(trees[0], logs)
            if not options.only or any(text in golden.name for text in options.only)
        ]
        if options.list:
            print("\n".join(golden.name for golden in goldens))
            return 0
        out = options.out.resolve() if options.out else scratch / "out"
        for side in SIDES:
            shutil.rmtree(out / side, ignore_errors=True)
        write_both(trees, goldens, scratch, out, logs, options.jobs)
        return compare(out / SIDES[0], out / SIDES[1])


@contextlib.contextmanager
def source_tree(commit: str | None, scratch: Path) -> Iterator[Path]:
    """Yield a folder with the source of a commit, which is removed at the end; without one, the working tree."""
    if commit is None:
        yield ROOT
        return
    folder = Path(tempfile.mkdtemp(prefix="commit-", dir=scratch))
    git = ["git", "-C", str(ROOT), "worktree"]
    added = subprocess.run([*git, "add", "--detach", "--force", folder, commit], capture_output=True, text=True)
    if added.returncode:
        sys.exit(f"git cannot check out {commit}: {added.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", folder], capture_output=True)


def write_both(
    trees: list[Path], goldens: list[Golden], scratch: Path, out: Path, logs: Path | None, jobs: int
) -> None:
    """Write the outputs of both source trees, with that many processes at once."""
    shares = max(1, jobs // 2)
    tasks = []
    for side, tree in zip(SIDES, trees, strict=True):
        home = scratch / side
        home.mkdir()
        (home / "tree").symlink_to(tree)
        shutil.copytree(tree / "results", home / "results", ignore=shutil.ignore_patterns("runs"))
        for name in FOLDERS_OF_LOGS if logs else ():
            (home / name).symlink_to(logs / name)
        for share in range(shares):
            task = home / f"task-{share}.json"
            names = {str(home): "SCRATCH", str(tree.resolve()): "TREE"}
            task.write_text(json.dumps([str(home), str(out / side), names, goldens[share::shares]]), encoding="utf-8")
            tasks.append(task)
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        for done in pool.map(lambda task: _start_worker(task, scratch), tasks):
            if done.returncode:
                sys.exit(f"a process that writes outputs ended with status {done.returncode}: {done.stderr[-2000:]}")


def _start_worker(task: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run the commands of a task with the source tree beside it, in an environment that says nothing of this one."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(task.parent / "tree"),
        "MPLCONFIGDIR": str(scratch / "matplotlib"),
        "MPLBACKEND": "agg",
        "TMPDIR": str(task.parent),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-P", __file__, str(task)]
    return subprocess.run(
        command, env=environment, cwd=task.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


# --- The process that runs the commands of one source tree; PYTHONPATH leads there ---


def work(task: Path) -> None:
    """Write the output of each golden of a task.

    Every command runs in a fork of this process, which has imported what takes long to import.
    """
    home, out, names, goldens = json.loads(task.read_text(encoding="utf-8"))
    import collbench

    for module in (*LARGE_LIBRARIES, *_modules_of(collbench.__path__)):
        with contextlib.suppress(Exception):
            import_module(module)
    gc.freeze()  # pages that the collector touches would be copied for every command
    replace = replacer(names, collbench.__version__)
    snippets = tomllib.loads(LIST.read_text(encoding="utf-8"))["snippets"]
    for golden in (Golden(*words) for words in goldens):
        folder = Path(home) / "work" / golden.name
        folder.mkdir(parents=True)
        for name in ("results", *FOLDERS_OF_LOGS):
            (folder / name).symlink_to(Path(home) / name)
        file = Path(out) / f"{golden.name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        texts = [run(line.strip(), golden.width, folder, snippets) for line in golden.commands]
        file.write_text(replace("".join([*texts, *left_files(folder)])), encoding="utf-8")
        shutil.rmtree(folder)
        shutil.rmtree(f"{folder}.home", ignore_errors=True)


def _modules_of(path: list[str]) -> Iterator[str]:
    for module in pkgutil.walk_packages(path, "collbench.", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            yield module.name


def run(command: str, width: int, folder: Path, snippets: dict[str, str]) -> str:
    """Run a command in a forked process, and return what it printed on both streams and its exit status."""
    streams = [Path(f"{folder}.stdout"), Path(f"{folder}.stderr")]
    terminal, stdout = pty.openpty() if width else (None, os.open(streams[0], os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
    process = os.fork()
    if process == 0:
        os.dup2(stdout, 1)
        os.dup2(os.open(streams[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os._exit(_in_child(shlex.split(command), width, folder, snippets))
    os.close(stdout)
    printed = _read_all(terminal) if terminal is not None else ""
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    printed = printed if terminal is not None else streams[0].read_text("utf-8", "replace")
    errors = streams[1].read_text("utf-8", "replace")
    for path in streams:
        path.unlink(missing_ok=True)
    text = f"$ {command if command.startswith('python ') else f'collbench {command}'}\n{_ended(printed)}"
    return text + (f"-- standard error\n{_ended(errors)}" if errors else "") + f"-- status {status}\n\n"


def _in_child(words: list[str], width: int, folder: Path, snippets: dict[str, str]) -> int:
    signal.alarm(LIMIT)
    os.chdir(folder)
    os.environ |= {"COLUMNS": str(width or 80), "HOME": f"{folder}.home"}
    status = 0
    try:
        if words[:1] == ["python"]:
            sys.argv = words[1:]
            exec(compile(snippets[words[1]], words[1], "exec"), {"__name__": "__main__"})
        else:
            from collbench.cli import main as program  # the console script of pyproject.toml

            sys.argv = ["collbench", *words]
            program()
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException as error:
        sys.stderr.write("".join(traceback.format_exception_only(error)))
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    return status


def _read_all(terminal: int) -> str:
    """Return what a terminal shows until the last process that has it ends."""
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 1 << 16):
            parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode("utf-8", "replace").replace("\r\n", "\n")


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


# --- What is kept of an output ---


def left_files(folder: Path) -> Iterator[str]:
    """Yield the text of each file that commands left in a folder."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        title = f"== {path.relative_to(folder)}\n"
        if path.suffix in ONLY_NAMED:
            yield title
            continue
        text = path.read_text("utf-8", "replace")
        readers: dict[str, Callable[[str], str]] = {".svg": svg_text, ".html": html_text}
        yield title + _ended(readers.get(path.suffix, str)(text)) + "\n"


def svg_text(text: str) -> str:
    """Return texts, coordinates rounded to tenths, and styles of a picture; without ids and metadata."""
    lines = []
    # Matplotlib draws letters as paths and keeps the text in a comment.
    for element in ElementTree.fromstring(
        text, ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    ).iter():
        if element.tag is ElementTree.Comment:
            lines.append(f"text {(element.text or '').strip()}")
            continue
        tag = str(element.tag).rpartition("}")[2]
        if tag in ("path", "use", "text", "rect", "image"):
            shape = [element.get(name, "") for name in ("d", "x", "y", "width", "height", "style")]
            shape.append("".join(element.itertext()).strip() if tag == "text" else "")
            line = " ".join(" ".join(shape).split())
            lines.append(f"{tag} {re.sub(r'-?[0-9]+[.][0-9]+', lambda number: f'{float(number[0]):.1f}', line)}")
    return "\n".join(line for line in lines if line.strip())


class _Page(HTMLParser):
    """Collects what a reader of a page sees as text, a line for each element, and counts figures."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.figures = 0
        self.hidden = ""

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.figures += tag in ("svg", "figure", "img", "canvas")
        if tag in ("script", "style"):
            self.hidden = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self.hidden:
            self.hidden = ""

    def handle_data(self, data: str) -> None:
        if not self.hidden and data.strip():
            self.lines.append(" ".join(data.split()))


def html_text(text: str) -> str:
    """Return the text of a page and the number of its figures."""
    page = _Page()
    page.feed(text)
    return "\n".join([*page.lines, f"{page.figures} figures"])


def replacer(names: dict[str, str], version: str) -> Callable[[str], str]:
    """Return a function that replaces paths, the version and the present day by words."""
    days = [datetime.datetime.now(datetime.UTC) + datetime.timedelta(days) for days in (-1, 0, 1)]
    day = "|".join(day.strftime("%Y-?%m-?%d") for day in days)
    patterns = [
        *((re.escape(path), word) for path, word in sorted(names.items(), key=lambda name: -len(name[0]))),
        (r"(timestamp_seconds\{.*\}) \d+", r"\1 NOW"),
        (rf"({day})([T -]\d\d:?\d\d(:?\d\d)?(\.\d+)?(\+00:00|Z)?)?", "TODAY"),
        (rf"(?<![\w.]){re.escape(version)}(?![\w.])", "VERSION"),
    ]

    def replace(text: str) -> str:
        for pattern, word in patterns:
            text = re.sub(pattern, word, text)
        return text

    return replace


# --- The comparison ---


def compare(base: Path, head: Path) -> int:
    """Print what differs between the files of two folders, and return the exit status."""
    names = sorted(
        {str(path.relative_to(side)) for side in (base, head) for path in side.rglob("*.txt") if path.is_file()}
    )
    differing = 0
    for name in names:
        texts = [path.read_text("utf-8").split("\n") if path.exists() else [] for path in (base / name, head / name)]
        if texts[0] == texts[1]:
            continue
        differing += 1
        lines = list(difflib.unified_diff(*texts, f"base/{name}", f"head/{name}", n=1, lineterm=""))
        print("\n".join(lines[:DIFF_LINES]))
        if len(lines) > DIFF_LINES:
            print(f"... and {len(lines) - DIFF_LINES} lines more; --out FOLDER keeps both files")
    print(f"{differing} of {len(names)} outputs differ")
    return int(differing > 0)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].endswith(".json"):
        work(Path(sys.argv[1]))
    else:
        started = time.monotonic()
        status = main()
        print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
        sys.exit(status)
