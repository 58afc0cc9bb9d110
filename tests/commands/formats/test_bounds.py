"""An import is bounded, whatever its files hold: what they are read into, how much of it, and numbers that are none."""

import gzip
import math
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.commands.formats import source
from collbench.commands.formats.command_lines import MOST_NAMED, Context
from collbench.commands.formats.imported import Hints
from collbench.commands.formats.importing import ImportRequest, read_foreign, read_tests, remarks
from collbench.commands.formats.source import ForeignFile, bare, decode
from collbench.commands.formats.words import number, span
from collbench.errors import RunFileError
from tests.commands.formats.goldens import DATA, reported

LOG = (DATA / "nccl_tests_2_19.txt").read_text()
TOP, ROW = (
    LOG[: LOG.index("           8  ")],
    next(line for line in LOG.splitlines() if line.startswith("           8 ")),
)
NOISE = "node1:{0}:{0} [0] NCCL INFO Connected all rings {0}\n"
VIA = "[1,3]<stdout>: node1:7:7 [0] NCCL INFO Channel {}/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def text_of(packed: ForeignFile) -> list[str]:
    return [line for _, line in packed.lines()]


def test_all_files_of_an_import_have_one_bound_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"a": LOG, "b": LOG, "c": "", "d": LOG[:800], "e": LOG}.items():
        (tmp_path / f"{name}.log.gz").write_bytes(gzip.compress(text.encode()))
    rows = len(reported(read_tests(decode("a", LOG.encode()), Hints())))
    for kind, most in {"bytes": 2 * len(LOG) + 900, "lines": 2 * LOG.count("\n") + 30, "rows": 2 * 7 + 6}.items():
        monkeypatch.setitem(source.BOUNDS, kind, most)
        groups, _, refused = read_foreign(ImportRequest(tmp_path))
        assert sum(len(group.results) for group in groups) == 2 * rows
        (beyond,) = [reason for reason in refused if "exceeds the limit" in reason]
        assert f"e.log.gz exceeds the limit of {most:,} {kind} per import; cut out the part" in beyond
        monkeypatch.undo()


@pytest.mark.parametrize(
    "line", ["\n", "lorem \N{GRINNING FACE} ipsum\n", "x", NOISE.format(5), "\x1b[31m&lt;<br>\n"], ids=ascii
)
def test_memory_is_a_few_times_the_file_whatever_its_lines_are(line: str) -> None:
    content = (LOG + line * (2**18 // len(line.encode()))).encode()
    read_tests(decode("x", LOG.encode()), Hints())  # what is imported at first
    tracemalloc.start()
    read_tests(decode("x", content), Hints())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * len(content)


def test_a_format_is_looked_for_in_the_first_mebibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr("collbench.commands.formats.importing.bare", lambda line: tried.append(line) or bare(line))
    with pytest.raises(RunFileError, match="nothing in it looks like results"):
        read_tests(decode("x", b"lorem ipsum\n" * 2**18), Hints())
    assert sum(len(line) + 1 for line in tried) <= 2**20 + 12


def test_lines_of_a_library_without_a_fact_cost_nothing_and_its_facts_stay() -> None:
    many = "".join(map(NOISE.format, range(1000)))
    head, _, rest = LOG.partition("#       size")
    facts = VIA.format("00") + VIA.format("01") + "n1:7:7 [0] NCCL INFO NCCL_ALGO set by environment to Ring.\n"
    log = head + many + facts + "# " + rest
    lines = text_of(decode("x", log.encode()))
    assert len(lines) <= len(log.splitlines()) - 1000
    (test,) = read_tests(decode("x", (head + many + facts + "#       size" + rest).encode()), Hints())
    assert (dict(test.layout)["log"], dict(test.machine.variables)["NCCL_ALGO"]) == ({"transport": "P2P/CUMEM"}, "Ring")
    assert len(test.results) == 14

    # The first line is the sign of such a log.  A row behind one stays, and so does what a second test says again.
    assert f"{NOISE.format(1).rstrip()} {ROW}" in text_of(decode("x", f"{NOISE.format(1).rstrip()} {ROW}\n".encode()))
    assert text_of(decode("x", f"{VIA.format(0)}other\n{VIA.format(1)}".encode())).count(VIA.format(1).rstrip()) == 1
    assert [at for at, _ in decode("x", f"{many}last\n".encode()).lines()] == [1, 1001]
    with pytest.raises(RunFileError, match="NCCL's own log without a table"):
        read_tests(decode("x", many.encode()), Hints())


def test_commands_and_variables_beyond_the_most_are_forgotten() -> None:
    context = Context()
    for at in range(4 * MOST_NAMED):
        assert context.take(f"export NCCL_A{at}=1") > 1, "it counts for several lines"
        context.take(f"mpirun -n 2 all_reduce_perf -b {at} NCCL_B{at}=2")
        context.take_log(f" NCCL INFO NCCL_C{at} set by environment to 3")
        context.take_log(f" NCCL INFO MNNVL busId 0x1 fabric UUID 1.{at} cliqueId 7")
    context.take_log(" NCCL INFO NCCL_C0 set by environment to 4")
    assert context.environment["NCCL_C0"] == "4", "what is known changes"
    sizes = [len(context.environment) // 2, len(context.fabrics), len(context.programs)]
    assert all(size <= MOST_NAMED + 1 for size in sizes), sizes


def test_a_number_with_an_absurd_exponent_costs_its_row() -> None:
    for word in ("1e-9999999", "1e9999999", "1e-99999999999999999999", "0e-9999999"):
        changed = LOG.replace(ROW, ROW.replace(" 0.00 ", f" {word} ", 1))
        (test,) = read_tests(decode("x", changed.encode()), Hints())
        assert len(test.results) == 12
        assert any("is an incomplete row" in remark for remark in remarks([test])), word


@given(st.from_regex(r"[+-]?[0-9]{0,30}\.?[0-9]{1,30}([eE][+-]?[0-9]{1,12})?", fullmatch=True))
def test_a_span_holds_its_number_or_there_is_none(word: str) -> None:
    within = span(word)
    assert (within is None) is (number(word) is None)
    if within:
        assert within[0] <= float(word) <= within[1] or math.isinf(within[1])
