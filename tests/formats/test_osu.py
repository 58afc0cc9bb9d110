"""OSU's tests of pairs, of a barrier and of message rates, there and back."""

import pytest

from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE
from collbench.formats.exported import ExportSelection
from collbench.formats.imported import Hints
from collbench.formats.imported import Test as Imported
from collbench.formats.nccl_tests.write_text import write as write_nccl_tests
from collbench.formats.osu import read
from collbench.formats.osu_tests import MEASURED
from collbench.formats.osu_write import write
from collbench.formats.source import Source
from collbench.measurement import Measurement, Reported
from collbench.runs.header import Header

OURS = [name for name, collective in COLLECTIVES.items() if collective.suite == "osu"]
MBW_MR = """# OSU MPI Multiple Bandwidth / Message Rate Test v5.6.2
# [ pairs: 8 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
1                       8.71        8710288.67
65536               12328.76         188121.99
"""
BARRIER = """# OSU MPI Barrier Latency Test v7.3
# Avg Latency(us)
             1.41
"""


def source(text: str) -> Source:
    return Source("osu.log", text)


def rows(tests: list[Imported]) -> list[Reported]:
    return [result for test in tests for result in test.results if isinstance(result, Reported)]


def measured(name: str, nbytes: int, ranks: int = 4) -> Measurement:
    case = Case(COLLECTIVES[name], nbytes, DATATYPES["float"], NONE, 0, ranks, False)
    return Measurement(case=case, implementation="mpi", platform="cpu", launches=1, seconds=(2e-6, 4e-6))


def test_what_is_measured_comes_back_as_it_was() -> None:
    for name in OURS:
        sizes = [4, 65536] if COLLECTIVES[name].sized else [4]
        text = write(ExportSelection(Header(), tuple(measured(name, nbytes) for nbytes in sizes), pytest.fail))
        back = rows(read(source(text), Hints()))
        assert [(row.case.collective.name, row.case.ranks, row.case.nbytes) for row in back] == [
            (name, 4, nbytes) for nbytes in sizes
        ]
        assert [row.seconds for row in back] == pytest.approx([3e-6] * len(sizes), rel=0.01), name
        assert not any(str(row.note) for row in back), name


def test_rates_are_those_that_osu_counts() -> None:
    for name, pairs in (("bandwidth", 1), ("bidirectional", 2), ("multipair", 2)):
        kind, row = MEASURED[name], measured(name, 3000)
        figures = [float(figure) for figure in kind.figures(row, 3e-6)]
        assert figures == pytest.approx([pairs * 1000.0, pairs / 3e-6][: len(figures)], abs=0.01)


def test_a_foreign_pair_is_a_sendrecv_unless_the_user_says_what_it_is() -> None:
    text = "# OSU MPI Latency Test v7.4\n# Size       Avg Latency(us)\n8    1.50\n"
    (row,) = rows(read(source(text), Hints()))
    assert (row.case.collective.name, row.seconds) == ("sendrecv", pytest.approx(1.5e-6))
    assert "half a round trip" in str(row.note)
    (row,) = rows(read(source(text), Hints(collective="pingpong")))
    assert (row.case.collective.name, row.seconds) == ("pingpong", pytest.approx(1.5e-6))
    assert "half a round trip" not in str(row.note)


def test_message_rates_of_a_foreign_log_are_read_where_the_user_says_so() -> None:
    assert rows(read(source(MBW_MR), Hints())) == []
    first, last = rows(read(source(MBW_MR), Hints(collective="multipair")))
    assert (first.case.ranks, first.case.nbytes) == (16, 1)
    assert first.seconds == pytest.approx(8 / 8710288.67, rel=1e-3)
    assert last.seconds == pytest.approx(8 / 188121.99, rel=1e-3)


def test_a_barrier_has_no_size() -> None:
    (row,) = rows(read(source(BARRIER), Hints(ranks=4)))
    assert (row.case.collective.name, row.case.ranks, row.seconds) == ("barrier", 4, pytest.approx(1.41e-6))


def test_nccl_tests_has_none_of_them() -> None:
    said: list[str] = []
    both = (measured("pingpong", 8), measured("sendrecv", 8))
    assert "sendrecv_perf" in write_nccl_tests(ExportSelection(Header(), both, said.append))
    assert said == ["nccl-tests has no pingpong"]
    with pytest.raises(Exception, match="nothing to export: nccl-tests has no pingpong; choose --to osu or csv"):
        write_nccl_tests(ExportSelection(Header(), both[:1], said.append))
