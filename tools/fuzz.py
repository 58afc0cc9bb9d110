"""Real files with changed lines, words and bytes, for the importers: `make fuzz`.

Results of a file that is read can be stored, printed, drawn and exported, and the exported file can be read again.  A
file that is not read ends in an error of collbench.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from collbench.cli.results_table import row
from collbench.commands.formats.imported import Hints
from collbench.commands.formats.importing import grouped, read_tests, remarks, select, writers
from collbench.commands.formats.source import decode
from collbench.errors import CollbenchError
from collbench.plots.panels import panels
from collbench.runfile.schema import Header, to_line, to_result
from collbench.runfile.store import Run
from tools import ROOT

DATA = ROOT / "tests" / "commands" / "formats" / "data"
GOLDENS = {path.name: path.read_bytes() for path in sorted(DATA.iterdir())}
WORDS = (
    *(b"N/A", b"nan", b"inf", b"-inf", b"1e999", b"1e-999", b"-1", b"0", b"0.00", b"9" * 25, b"9" * 5000, b"1.2e+07"),
    *(b"1e-9999999", b"0e99999999999999999999", b"\xf0\x9f\x98\x80" * 9, b"\xf0\x9d\x9f\x97"),
    *(b"", b"#", b"\x00", b"\xff\xfe", b"\r", b"float", b"sum", b'"', b"{", b"[" * 4000, b"]", b",", b"null", b"true"),
    *(b"host:1:2 [0] NCCL WARN oops", b"h:1:2 [0] NCCL INFO x\n", b"2026-07-09 10:00:00", b"\\", b"\\ud800", b"\t"),
    *(b"hypercube_perf", b"all_reduce_perf", b"f8e5m2", b"\xe2\x80\xae", b"\x1b[31m", b"../../x"),
    b"4611686018427387904",
)
CHANGES: dict[str, Callable[[list[bytes], int, int, bytes], list[bytes]]] = {
    "delete": lambda parts, i, j, word: parts[:i] + parts[i + 1 :],
    "duplicate": lambda parts, i, j, word: [*parts[: i + 1], *parts[i : i + 1 + j % 9], *parts[i + 1 :]],
    "swap": lambda parts, i, j, word: _swapped(parts, i, j % max(1, len(parts))),
    "truncate": lambda parts, i, j, word: parts[: max(i, len(parts) * 2 // 3)],
    "behead": lambda parts, i, j, word: parts[i // 8 :],
    "replace": lambda parts, i, j, word: [*parts[:i], word, *parts[i + 1 :]],
    "insert": lambda parts, i, j, word: [*parts[:i], word, *parts[i:]],
}
PACKED: tuple[Callable[[bytes], bytes], ...] = (
    *(*[bytes] * 9, gzip.compress, lambda data: gzip.compress(b"") * 500 + gzip.compress(data)),
    lambda data: gzip.compress(data + b"\n" * 2**23, 1),
)
SEPARATORS = (b"\n", b" ", b",", b"")


def _swapped(parts: list[bytes], i: int, j: int) -> list[bytes]:
    changed = list(parts)
    if parts:
        changed[i], changed[j] = changed[j], changed[i]
    return changed


@st.composite
def broken(draw: st.DrawFn) -> tuple[str, bytes, int | None]:
    """Draw a golden with a few changes, under its name or another, and perhaps a number of ranks."""
    name = draw(st.sampled_from(sorted(GOLDENS)))
    data = GOLDENS[name]
    for _ in range(draw(st.integers(1, 5))):
        separator = draw(st.sampled_from(SEPARATORS))
        change = CHANGES[draw(st.sampled_from(sorted(CHANGES)))]
        parts = data.split(separator) if separator else [bytes([byte]) for byte in data]
        place, other = draw(st.integers(0, 2**16)), draw(st.integers(0, 2**16))
        data = separator.join(change(parts, place % max(1, len(parts)), other, draw(st.sampled_from(WORDS))))
    data = draw(st.sampled_from(PACKED))(data)
    return draw(st.sampled_from((name, "log"))), data, draw(st.sampled_from((None, 1, 4)))


def outcome(name: str, data: bytes, ranks: int | None) -> str:
    """Return the outcome of a file: `results`, or the name of the error."""
    try:
        tests = read_tests(decode(name, data), Hints(ranks))
        assert all("\n" not in remark for remark in remarks(tests))
        runs = [as_run(group.header(["collbench", "import"]), group.results) for group in grouped(tests)]
    except CollbenchError as error:
        return type(error).__name__
    for run in runs:
        drawn = [result.case.title + row(result, None) for result in run.results]
        assert all(line.isprintable() for line in drawn)
        panels([run])
        for wanted in writers():
            _exported(run, wanted)
    return "results" if runs else "nothing kept"


def as_run(header: Header, results: list[object]) -> Run:
    """Return the run after a round trip through the JSON of a run file."""
    lines = [json.dumps(to_line(result), allow_nan=False) for result in results]  # type: ignore[arg-type]
    read = [to_result(json.loads(line)) for line in lines]
    stored = Header.from_json(json.loads(json.dumps(header.to_json(), allow_nan=False)))
    return Run(Path("run.jsonl"), stored, tuple(one for one in read if one), True)


def _exported(run: Run, name: str) -> None:
    try:
        text = writers()[name](select(run.header, run.results, run.path))
        if text.strip():
            read_tests(decode("exported", text.encode()), Hints(4))
    except CollbenchError:
        return
