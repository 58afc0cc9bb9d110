"""Broken input: real files with lines, words, bytes and numbers changed; `python -m tools.fuzz` tries 10,000.

Whatever is read must be storable, printable, drawable and exportable, and what is exported readable again; anything
else must end in one of collbench's own errors, within two seconds.
"""

import gzip
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
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

LONGEST = 2.0  # seconds for one input
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
    """A golden with a few changes, under its name, and perhaps the number of ranks."""
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
    """What became of it: `results`, or the name of the error."""
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
    """What a run file would say, by way of its JSON."""
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


def main(examples: int) -> int:
    """Try so many, print what became of them."""
    counts: Counter[str] = Counter()
    slowest = 0.0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(broken())
    def attempt(changed: tuple[str, bytes, int | None]) -> None:
        nonlocal slowest
        start = time.perf_counter()
        counts[outcome(*changed)] += 1
        took = time.perf_counter() - start
        slowest = max(slowest, took)
        assert took < LONGEST, f"{took:.1f} s"

    attempt()
    told = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    print(f"{sum(counts.values())} inputs: {told}")
    print(f"slowest: {slowest:.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
