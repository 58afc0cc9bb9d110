"""Compare the output of two commits: tables, JSON, CSV, reports, plots, error messages, predicted times.

`python -m tools.goldens BASE [HEAD]` runs the commands of goldens.toml with the source of both commits, prints a
unified diff, and exits with status 1 if there is a difference.  HEAD is the working tree unless a commit is named.
Nothing is measured.  Each commit reads its own `results/`, so a new format of run files shows only in the printed
results.  No command prints the table of a measured sweep; the library's rows, `check --run` and the report have its
numbers.  Signals, full disks and kills belong to tools/faults.

A golden is a file in the output folder.  It has the output of consecutive commands in an empty folder (standard output,
standard error, exit status), and then the files that they wrote there.  SVG files are reduced to texts, coordinates and
styles, HTML to its text, curves and number of figures, run files and bitmaps to their names.  Paths, the present day
and the version, which differ between executions, are replaced by words.
"""

import argparse
import contextlib
import datetime
import difflib
import gc
import html
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
import tomllib
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")
SIDES = ("base", "head")  # of equal length, so that lines with paths are broken alike
WIDTHS = (80, 120)  # columns of a terminal
LIMIT = 120  # seconds for a command
DIFF_LINES = 40  # printed lines of a golden
LOGS = ("logs", "reports")  # folders of other tools' logs
LOG_NAMES = (".log", ".txt", ".json", ".prom")
NAMED_ONLY = (".jsonl", ".png", ".pdf", ".parquet")
LARGE_LIBRARIES = ("numpy", "scipy.optimize", "scipy.stats", "matplotlib.pyplot", "jinja2", "msgspec", "click")
ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "MPLBACKEND": "agg",
    "NO_COLOR": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PATH": os.environ["PATH"],
    "PYTHONDONTWRITEBYTECODE": "1",
    "TERM": "dumb",
    "TZ": "UTC",
}


class Golden(NamedTuple):
    """Commands with their output in one file: on a terminal of this width, or into a pipe for 0."""

    name: str
    commands: list[str]
    width: int = 0


# --- The list of commands ---


def all_goldens(tree: Path, logs: Path | None) -> Iterator[Golden]:
    """Yield the goldens of goldens.toml, for each run and system of a source tree, and for each log."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    yield from _goldens("", listed["commands"], {})
    for path in sorted((tree / "results").rglob("run.jsonl")):
        run = path.parent.relative_to(tree)
        yield from _goldens(f"{run}/", listed["each-run"], {"RUN": str(run)})
    for path in sorted((tree / "collbench").rglob("presets/*.toml")):
        yield from _goldens(f"systems/{path.stem}/", listed["each-system"], {"SYSTEM": path.stem})
    for path in sorted(path for folder in LOGS if logs for path in (logs / folder).glob("*")):
        if path.suffix in LOG_NAMES and path.name != "index.json":
            log = path.relative_to(logs)
            yield from _goldens(f"{log}/", listed["each-log"], {"LOG": str(log), "GIVEN": _given_with(path)})


def _goldens(prefix: str, section: dict[str, dict[str, list[str]]], words: dict[str, str]) -> Iterator[Golden]:
    for stream, widths in (("terminal", WIDTHS), ("pipe", (0,))):
        for name, lines in section.get(stream, {}).items():
            commands = [re.sub(r"\b[A-Z]+\b", lambda match: words.get(match[0], match[0]), line) for line in lines]
            for width in widths:
                yield Golden(f"{prefix}{name}{f'@{width}' if width else ''}", commands, width)


def _given_with(log: Path) -> str:
    """Return the options that the index of the folder has for a log."""
    index = log.with_name("index.json")
    entries = json.loads(index.read_text(encoding="utf-8")) if index.exists() else []
    return next((shlex.join(entry["args"]) for entry in entries if entry["id"] == log.stem), "")


# --- Two source trees, side by side ---


def main() -> int:
    """Write the goldens of both commits, and compare them."""
    parser = argparse.ArgumentParser("python -m tools.goldens", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    parser.add_argument("head", metavar="HEAD", nargs="?", help="a later one (default: the working tree as it is)")
    parser.add_argument("--only", metavar="TEXT", action="append", help="goldens with this in their name; repeatable")
    parser.add_argument("--logs", metavar="FOLDER", type=Path, default=ROOT.parents[0] / "shared")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="keep the outputs, in FOLDER/base and FOLDER/head")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="processes at once (default: 2)")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # so that scratch folders are removed
        signal.signal(number, lambda number, frame: sys.exit(128 + number))

    logs = options.logs.resolve() if any((options.logs / name).is_dir() for name in LOGS) else None
    if not logs:
        print(f"imports are left out: no {' or '.join(LOGS)} in {options.logs}; give --logs FOLDER", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="goldens-"))).resolve()
        trees = [stack.enter_context(source_tree(commit, scratch)) for commit in (options.base, options.head)]
        every = all_goldens(trees[0], logs)
        goldens = [golden for golden in every if any(map(golden.name.__contains__, options.only or [""]))]
        out = options.out.resolve() if options.out else scratch / "out"
        write_both(trees, goldens, scratch, out, logs, options.jobs)
        return compare(out)


@contextlib.contextmanager
def source_tree(commit: str | None, scratch: Path) -> Iterator[Path]:
    """Yield a folder with the source of a commit, removed at the end; without a commit, the working tree."""
    if commit is None:
        yield ROOT
        return
    folder = tempfile.mkdtemp(prefix="commit-", dir=scratch)
    git = ["git", "-C", str(ROOT), "worktree"]
    try:
        added = subprocess.run([*git, "add", "--detach", folder, commit], capture_output=True, text=True)
        if added.returncode:
            sys.exit(f"git has no commit {commit}: {added.stderr.strip()}")
        yield Path(folder)
    finally:
        subprocess.run([*git, "remove", "--force", folder], capture_output=True)


def write_both(
    trees: list[Path], goldens: list[Golden], scratch: Path, out: Path, logs: Path | None = None, jobs: int = 2
) -> None:
    """Write the goldens of two source trees to out/base and out/head, with `jobs` processes at once."""
    tasks = []
    for side, tree in zip(SIDES, trees, strict=True):
        shutil.rmtree(out / side, ignore_errors=True)
        (out / side).mkdir(parents=True)
        home = scratch / side
        shutil.copytree(tree / "results", home / "results", ignore=shutil.ignore_patterns("runs"))
        (home / "tree").symlink_to(tree)
        for name in LOGS if logs else ():
            (home / name).symlink_to(logs / name)
        for share in range(shares := max(1, jobs // 2)):
            tasks.append(home / f"task-{share}.json")
            tasks[-1].write_text(json.dumps([str(tree), str(out / side), goldens[share::shares]]), encoding="utf-8")
    for group in [tasks] if jobs > 1 else [[task] for task in tasks]:
        workers = [_start_worker(task, scratch) for task in group]
        try:
            if any(worker.wait() for worker in workers):
                sys.exit("a process that writes goldens failed")
        finally:
            for worker in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()


def _start_worker(task: Path, scratch: Path) -> "subprocess.Popen[bytes]":
    folders = {"PYTHONPATH": f"{task.parent}/tree", "TMPDIR": str(task.parent), "MPLCONFIGDIR": str(scratch / "fonts")}
    command = [sys.executable, "-P", __file__, "--task", str(task)]
    return subprocess.Popen(command, env=ENVIRONMENT | folders, stdin=subprocess.DEVNULL, start_new_session=True)


# --- The process that runs the commands of a source tree, which PYTHONPATH names ---


def work(task: Path) -> None:
    """Write the goldens of a task; each command runs in a fork of a process that has imported the large libraries."""
    home, (tree, out, goldens) = task.parent, json.loads(task.read_text(encoding="utf-8"))
    collbench = import_module("collbench")
    modules = pkgutil.walk_packages(collbench.__path__, "collbench.", onerror=lambda name: None)
    for name in (*LARGE_LIBRARIES, *(module.name for module in modules if not module.name.endswith("__main__"))):
        with contextlib.suppress(Exception):
            import_module(name)
    gc.freeze()  # the collector would otherwise touch these pages, and so copy them, in each fork
    replace = replacer({str(home): "SCRATCH", tree: "TREE"}, collbench.__version__)
    snippets = tomllib.loads(LIST.read_text(encoding="utf-8"))["snippets"]
    for name, commands, width in goldens:
        folder = home / "work" / name
        folder.mkdir(parents=True)
        for link in ("results", *LOGS):
            (folder / link).symlink_to(home / link)
        texts = [run(command.strip(), width, folder, snippets) for command in commands]
        file = Path(out, f"{name}.golden")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(replace("".join([*texts, *left_files(folder)])), encoding="utf-8")
        shutil.rmtree(home / "work")


def run(command: str, width: int, folder: Path, snippets: dict[str, str]) -> str:
    """Run a command in a fork, and return its output on both streams and its exit status."""
    files = [Path(f"{folder}.out"), Path(f"{folder}.err")]
    stdout, stderr = (os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for file in files)
    terminal = -1
    if width:
        os.close(stdout)
        terminal, stdout = pty.openpty()
    process = os.fork()
    if process == 0:
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os._exit(_in_fork(shlex.split(command), width, folder, snippets))
    os.close(stdout)
    os.close(stderr)
    if width:
        files[0].write_bytes(_shown_on(terminal))
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    printed, errors = (file.read_text("utf-8", "replace") for file in files)
    program = "" if command.startswith("python ") else "collbench "
    errors = errors and f"\n-- standard error\n{errors}"
    return f"$ {program}{command}\n{printed}{errors}\n-- status {status}\n\n"


def _in_fork(words: list[str], width: int, folder: Path, snippets: dict[str, str]) -> int:
    """Run a command, and return its exit status."""
    signal.alarm(LIMIT)
    os.chdir(folder)
    os.environ |= {"HOME": f"{folder}.home"} | ({"COLUMNS": str(width)} if width else {})
    status = 0
    try:
        if words[0] == "python":
            sys.argv = words[1:]
            exec(compile(snippets[words[1]], words[1], "exec"), {"__name__": "__main__"})
        else:
            sys.argv = ["collbench", *words]
            import_module("collbench.cli").main()  # as the console script does
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException as error:
        sys.stderr.write("".join(traceback.format_exception_only(error)))
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    return status


def _shown_on(terminal: int) -> bytes:
    """Return the output on a terminal, until the last process that writes to it ends."""
    shown = b""
    with contextlib.suppress(OSError), open(terminal, "rb", buffering=0) as stream:
        while part := stream.read(1 << 16):
            shown += part
    return shown.replace(b"\r\n", b"\n")


# --- The kept part of an output ---


def left_files(folder: Path) -> Iterator[str]:
    """Yield name and text of each file that commands wrote into a folder."""
    readers: dict[str, Callable[[str], str]] = {".svg": svg_text, ".html": html_text}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        yield f"== {path.relative_to(folder)}\n"
        if path.suffix not in NAMED_ONLY:
            yield readers.get(path.suffix, str)(path.read_text("utf-8", "replace")) + "\n\n"


def svg_text(text: str) -> str:
    """Return a line for each text, rounded coordinates and style of a picture; neither ids nor metadata."""
    lines = []
    text = re.sub(r"<defs>.*?</defs>", "", text, flags=re.DOTALL)
    # Matplotlib draws each letter as a shape of <defs>, and keeps the text in a comment.
    builder = ElementTree.TreeBuilder(insert_comments=True)
    for element in ElementTree.fromstring(text, ElementTree.XMLParser(target=builder)).iter():
        tag = "text" if element.tag is ElementTree.Comment else str(element.tag).rpartition("}")[2]
        values = [element.get(name, "") for name in ("d", "x", "y", "width", "height", "style")]
        values += [element.get("transform", "") if tag == "g" else "", (element.text or "") if tag == "text" else ""]
        line = " ".join(" ".join(values).split())
        if line and tag in ("path", "use", "text", "rect", "image", "g"):
            lines.append(f"{tag} " + re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", line))
    return "\n".join(lines)


def html_text(text: str) -> str:
    """Return the text of a page with a line for each element, the data of its curves, and the number of its figures."""
    data = re.findall(r"<script type=.application/json[^>]*>(.*?)</script>", text, re.DOTALL)
    text = re.sub(r"<(script|style)\b.*?</\1\s*>", "", text, flags=re.DOTALL)
    figures = len(re.findall(r"<(svg|figure|img|canvas)\b", text))
    lines = (" ".join(html.unescape(part).split()) for part in re.split(r"<[^>]*>", text))
    curves = (json.dumps(json.loads(part), indent=1) for part in data)
    return "\n".join([*filter(None, lines), *curves, f"{figures} figures"])


def replacer(paths: dict[str, str], version: str) -> Callable[[str], str]:
    """Return a function that replaces paths, the version and times of the present day by words."""
    now = datetime.datetime.now(datetime.UTC)
    days = [(now + datetime.timedelta(days)).strftime("%Y-?%m-?%d") for days in (-1, 0, 1)]
    patterns = [(re.escape(path), word) for path, word in paths.items()]
    patterns += [
        (rf"({'|'.join(days)})([T -]\d\d:?\d\d(:?\d\d)?(\.\d+)?(\+00:00|Z)?)?", "TODAY"),
        (r"(timestamp_seconds\{.*\}) \d+", r"\1 NOW"),
        (rf"(?<![\w.]){re.escape(version)}(?![\w.])", "VERSION"),
    ]

    def replace(text: str) -> str:
        for pattern, word in patterns:
            text = re.sub(pattern, word, text)
        return text

    return replace


# --- The comparison ---


def compare(out: Path) -> int:
    """Print the differences between out/base and out/head, and return the exit status."""
    names = sorted({path.relative_to(out / side) for side in SIDES for path in (out / side).rglob("*.golden")})
    differing = 0
    for name in names:
        paths = [out / side / name for side in SIDES]
        base, head = (path.read_text("utf-8") if path.exists() else "" for path in paths)
        if base == head:
            continue
        differing += 1
        labels = [f"{side}/{name}" for side in SIDES]
        lines = [*difflib.unified_diff(base.splitlines(), head.splitlines(), *labels, n=1, lineterm="")]
        print("\n".join(lines[:DIFF_LINES]))
        if len(lines) > DIFF_LINES:
            print(f"... and {len(lines) - DIFF_LINES} more lines; --out FOLDER keeps both outputs")
    print(f"{differing} of {len(names)} outputs differ")
    return int(differing > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        work(Path(sys.argv[2]))
    else:
        sys.exit(main())
