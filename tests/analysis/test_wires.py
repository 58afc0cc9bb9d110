"""What a wire brings and takes, from rows whose times are made up."""

from collbench.algorithms import choose, implementations
from collbench.analysis.crossover import Tradeoff, tradeoffs
from collbench.cases import Case
from collbench.cli.results_table import wires_table
from collbench.collectives import find_collective
from collbench.datatypes import DATATYPES, LEARNT, REDUCTIONS, WIRES, Lost, Study
from collbench.results import Measurement

SIZES = (1024, 2048, 4096)
STUDY = Study(1000, LEARNT, Lost(0.5, 0.1, 0.02), Lost(0.6, 0.2, 0.0004))


def row(name: str, nbytes: int, seconds: float) -> Measurement:
    case = Case(find_collective("allreduce"), nbytes, DATATYPES["float"], REDUCTIONS["sum"], 0, 2, False)
    wire = implementations()[name].wire
    return Measurement(case, name, "cpu", 1, (seconds,), errors=STUDY if wire else None)


def weighed(wire: tuple[float, ...], exact: tuple[float, ...], library: tuple[float, ...]) -> Tradeoff:
    """One wire beside a rung and a library, by seconds at each size."""
    times = {"narrow-e4m3": wire, "two-shot": exact, "mpi": library}
    rows = [row(name, size, seconds) for name, all_ in times.items() for size, seconds in zip(SIZES, all_, strict=True)]
    (found,) = tradeoffs(rows)
    return found


def test_a_wire_pays_from_the_size_from_which_on_it_is_always_faster_if_any() -> None:
    found = weighed((2, 2, 2), (1, 3, 4), (3, 1, 8))
    assert (found.pays_from(found.exact), found.pays_from(found.libraries)) == (4096, 4096)
    assert (found.gain(found.exact), found.gain(found.libraries)) == (2, 4)
    slower = weighed((1, 1, 5), (2, 2, 4), (9, 9, 9))
    assert slower.pays_from(slower.exact) is None
    assert slower.pays_from(slower.libraries) == 1024
    rows = [row("narrow-e4m3", 1024, 2), row("narrow-topk", 1024, 1), row("two-shot", 1024, 4), row("mpi", 1024, 3)]
    found = tradeoffs(rows)
    assert [one.name for one in found] == ["narrow-e4m3", "narrow-topk"]
    assert [one.gain(one.exact) for one in found] == [1.5, 3]


def test_a_row_has_the_errors_of_a_wire() -> None:
    found = weighed((2, 2, 2), (1, 3, 4), (3, 1, 8))
    title, names, line = list(wires_table([found]))[0:3]
    assert "at 4 KiB, 1,000 rounds" in title
    assert names.split() == ["bytes", "vs", "exact", "from", "vs", "lib", "from", "max", "RMS", "bias", "bias", "fed"]
    assert line.split() == ["narrow-e4m3", "1.03", "2x", "4", "KiB", "4x", "4", "KiB", "0.5", "0.1", "0.02", "0.0004"]
    (alone,) = tradeoffs([row("narrow-e4m3", 1024, 2)])
    assert list(wires_table([alone]))[-1].split()[2:6] == ["-"] * 4


def test_what_is_not_exact_is_asked_for_by_name_or_group() -> None:
    for platform in ("cpu", "gpu"):
        narrow = choose("narrow", platform)
        assert narrow == tuple(name for name, way in implementations().items() if way.wire), platform
        assert not set(narrow) & {*choose("all", platform), *choose("ladder", platform), *choose("library", platform)}
        assert choose("narrow-e4m3,two-shot", platform) == ("two-shot", "narrow-e4m3"), platform
    assert sorted(way.wire.name for way in implementations().values() if way.wire) == sorted(WIRES)
