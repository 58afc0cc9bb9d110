"""`collbench verify --bits`: kernels that add in other orders, starts and sizes, two runs, made-up GPUs."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.algorithms import implementations
from collbench.cases import Case, Sampling
from collbench.collectives import COLLECTIVES
from collbench.commands.verify import measured
from collbench.commands.verify.measured import LAWS
from collbench.commands.verify.rows import (
    ALIKE,
    CALLS,
    GRAPH,
    POSITION,
    RANKS,
    RESTART,
    SIZE,
    BitDifference,
    Bits,
    SumBits,
    difference,
    places,
)
from collbench.commands.verify.shown import kinds, tables
from collbench.datatypes import DATATYPES
from collbench.platforms.interface import Prepared
from collbench.platforms.layout import buffers
from collbench.properties import PROPERTIES
from collbench.results import Note, Outcome, Skipped
from collbench.runfile.schema import to_line, to_result
from collbench.runfile.store import read
from tests.commands.conftest import write_run
from tests.commands.verify.made_up_sums import CASE, ERROR, row
from tests.conftest import Command, mpiexec
from tests.platforms.gpu.opening import Open, nothing_set, opened
from tools.stand_in.cuda import Machine
from tools.stand_in.whole_commands import on_gpus

__all__ = ["nothing_set", "opened"]

IN_PLACE, ALIGNMENT = (each.subject for each in PROPERTIES.values())

KERNEL = """#include "flags.cuh"

extern "C" __global__ void {name}(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) count) {{
  const Call call(world);
  unsigned* const came = (unsigned*)(world.fifo_of(0) + fifo);
  came[1 + __atomic_fetch_add(came, 1, __ATOMIC_SEQ_CST) % world.ranks] = call.rank;
  call.meet(0);
  auto input = [&](unsigned number) {{ return (const T*)world.send[{order}]; }};
  for (u64 i = 0; i < count; i++) {{
    T sum = input(0)[i];
    for (unsigned number = 1; number < world.ranks; number++) sum = combine(sum, input(number)[i]);
    ((T*)world.receive[call.rank])[i] = sum;
  }}
  call.meet(1);
  call.leave();
}}
"""
ORDERS = {"arrival": "came[1 + number]", "own": "(call.rank + number) % world.ranks", "fixed": "number"}
BITS = ("verify", "--bits", "--on", "cpu", "--out", "out")


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """Kernels that add in the order of arrival, with the own input first, and in that of the ranks."""
    folder = tmp_path / "orders"
    folder.mkdir()
    for name, order in ORDERS.items():
        (folder / f"{name}.cu").write_text(KERNEL.format(name=name, order=order))
        record = 'collectives = ["allreduce"]\narguments = ["fifo", "count"]\nfifo = 1024\nin_place = false\n'
        (folder / f"{name}.toml").write_text(record)
    return folder


# Real ranks on CPUs.


def test_an_order_of_arrival_is_irreproducible_in_all_of_many_sums(
    collbench: Command, kernels: Path, tmp_path: Path
) -> None:
    words = ("-g", "3", "-b", "256", "-e", "16K", "-f", "2", "-d", "float", "--starts", "1")
    done = collbench(*BITS, "--impl", "arrival,own,fixed", *words, COLLBENCH_KERNELS=str(kernels))
    assert done.returncode == 1, done.stderr
    found = {name: [] for name in ORDERS}
    for result in read(tmp_path / "out").results:
        assert isinstance(result, SumBits)
        found[result.implementation].append([each.what for each in result.differences if each.what in ALIKE])
    assert {name: len(rows) for name, rows in found.items()} == dict.fromkeys(ORDERS, 21)
    assert found["arrival"] == [[CALLS]] * 21
    assert found["own"] == [[RANKS]] * 21
    assert found["fixed"] == [[]] * 21


def test_several_ranks_types_and_starts_make_one_run_with_tables(here: Command, tmp_path: Path) -> None:
    names = "mpi,ring-flags,one-shot,narrow-bfloat16"
    done = here(
        *BITS,
        "-g",
        "2,3",
        "-b",
        "4K",
        "-e",
        "64K",
        "-f",
        "16",
        "--budget",
        "10ms",
        "--impl",
        names,
        "--json",
        "rows.json",
    )
    assert done.returncode == 0, done.stderr
    run = read(tmp_path / "out")
    assert run.header.sweep.starts == 2
    assert [to_result(line) for line in json.loads((tmp_path / "rows.json").read_text())] == list(run.results)
    for result in run.results:
        if isinstance(result, Skipped):
            assert (result.implementation, result.case.dtype.name) == ("narrow-bfloat16", "bfloat16")
            continue
        assert isinstance(result, SumBits)
        assert result.right
        compared = {RANKS, CALLS, RESTART, ALIGNMENT, POSITION, *[IN_PLACE][: result.implementation != "one-shot"]}
        assert set(result.compared) == compared, result.implementation
        assert result.calls >= measured.LEAST
    lines = {title: {line.rows[0].implementation: line for line in of} for title, of in kinds(run.results).items()}
    three = lines["allreduce, bfloat16, sum, 3 ranks"]
    assert (three["one-shot"].accumulation, three["ring-flags"].accumulation) == ("float", "bfloat16")
    ring = lines["allreduce, float, sum, 3 ranks"]["ring-flags"]
    assert (ring.same(POSITION), ring.same(SIZE), ring.same(ALIGNMENT)) == ("differ", "differ", "same")
    assert three["one-shot"].same(POSITION) == three["one-shot"].same(SIZE) == "same"
    two = lines["allreduce, float, sum, 2 ranks"]
    assert two["ring-flags"].alike(two["one-shot"]) == (6, 6), "of two terms there is one order"
    assert two["narrow-bfloat16"].accumulation == "narrower"


@pytest.mark.parametrize("collective", ["reduce", "reducescatter"])
def test_sums_in_parts_or_of_one_rank_are_judged(here: Command, tmp_path: Path, collective: str) -> None:
    words = ("--op", collective, "-g", "3", "-b", "48K", "-e", "48K", "-d", "half", "--impl", "mpi,ring-flags")
    done = here(*BITS, *words, "--budget", "10ms", "--starts", "1")
    assert done.returncode == 0, done.stderr
    for result in read(tmp_path / "out").results:
        if isinstance(result, SumBits):
            assert {CALLS, ALIGNMENT, POSITION} <= set(result.compared) <= {CALLS, IN_PLACE, ALIGNMENT, POSITION}
            assert (result.error.accumulation, result.error.elements > 8000) == ("half", True)
            assert len(result.bits) == len(places(result.case.block))


def test_under_a_launcher_its_ranks_add_and_nothing_is_restarted(tmp_path: Path) -> None:
    words = ("verify", "--bits", "--on", "gpu", "-e", "256", "-d", "float", "--impl", "nccl", "--out", "out")
    done = on_gpus(tmp_path, *words, launcher=[mpiexec(), "-n", "2"], devices=2)
    assert done.returncode == 0, done.stderr
    rows = read(tmp_path / "out").results
    assert [row.case.work for row in rows] == [Bits(law) for law in LAWS]
    for of in rows:
        assert isinstance(of, SumBits)
        assert {RANKS, GRAPH} < set(of.compared) <= {*ALIKE, IN_PLACE, ALIGNMENT, POSITION} - {RESTART}
    assert done.stdout.count("changes of bits") == 1


def test_what_adds_nothing_and_options_without_bits_are_refused_in_a_line(here: Command) -> None:
    launched = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
    for words, said in (
        ("--bits --op broadcast", "broadcast"),
        ("--bits -d int8", "int8"),
        ("--bits --redop max", "leave --redop out"),
        ("--bits -g 2..x", "--ranks 2..x"),
        ("--bits -g 2,4 -b 4 -e 8 -f 2 --op reducescatter", "-b or -f"),
        ("--bits -b 8 -e 4", "-b 8 is larger than -e 4"),
        ("-g 2,3", "--ranks 2,3"),
        ("-b 4K", "--minbytes needs --bits"),
        ("--json -", "--json needs --bits"),
        ("--out out", "--out needs --bits"),
    ):
        done = here("verify", "--on", "cpu", *words.split())
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), words
        assert said in done.stderr, words
    assert here("verify", "--bits", "-g", "2,3", **launched).returncode == 2


# Made-up GPUs.


@pytest.fixture
def carried_out(opened: Open) -> Callable[..., Any]:
    """Carry the case out on two made-up GPUs, after a change of the platform."""

    def on(change: Callable[[Any], None] = lambda platform: None, graph: bool = True) -> SumBits:
        sampling = Sampling(budget=60, graph=graph)
        given = {"collectives": (COLLECTIVES["allreduce"],), "sizes": (4096,), "implementations": ("nccl",)}
        platform = opened(Machine(2), works=(Bits("normal"),), sampling=sampling, ranks=2, **given)
        change(platform)
        of = replace(CASE, ranks=2)
        (result,) = measured.measure(of, ["nccl"], platform, sampling, lambda *_: None)
        assert isinstance(result, SumBits)
        return result

    return on


def test_graphs_are_compared_with_launches_where_there_are_any(carried_out: Callable[..., SumBits]) -> None:
    assert set(carried_out().compared) == {RANKS, CALLS, GRAPH, IN_PLACE, ALIGNMENT, POSITION}
    assert GRAPH not in carried_out(graph=False).compared


def test_a_graph_that_gives_other_bits_is_named_with_the_first_element(carried_out: Callable[..., SumBits]) -> None:
    def change(platform: Any) -> None:
        replay = platform.clock.time

        def wrong(prepared: Any, launches: int) -> float:
            seconds: float = replay(prepared, launches)
            _, receive = buffers(platform.memory, replace(CASE, ranks=2), 1)
            platform.launcher.store(1, receive + 4 * 7, np.full(3, 2.5, np.float32))
            return seconds

        platform.clock.time = wrong

    row = carried_out(change)
    (found,) = row.differences
    assert (found.what, found.where, found.index, found.got) == (GRAPH, "in a graph, rank 1", 7, "2.5")
    assert found.elements == 3
    assert row.outcome is Outcome.WRONG


@pytest.mark.parametrize(("right", "where"), [(3, "call 4 of up to 50, rank 0"), (50, "call 51 or later, rank 0")])
def test_a_call_that_does_nothing_is_found_by_no_other_difference(
    carried_out: Callable[..., SumBits], monkeypatch: pytest.MonkeyPatch, right: int, where: str
) -> None:
    nccl, calls = implementations()["nccl"], list[int]()

    def prepare(of: Case, platform: Any) -> Prepared:
        prepared = nccl.prepare(of, platform)

        def launch(count: int) -> None:
            calls.append(count)
            if len(calls) <= right:
                prepared.launch(count)

        return replace(prepared, launch=launch)

    monkeypatch.setattr(measured, "implementations", lambda: {"nccl": replace(nccl, prepare=prepare)})
    row = carried_out(graph=False)
    assert [(found.what, found.where) for found in row.differences] == [(CALLS, where)]
    assert set(row.compared) == {RANKS, CALLS}


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_the_result_of_an_earlier_call_is_none_of_this_call(
    carried_out: Callable[..., SumBits], monkeypatch: pytest.MonkeyPatch, lag: int
) -> None:
    nccl = implementations()["nccl"]

    def prepare(of: Case, platform: Any) -> Prepared:
        prepared, launcher, results = nccl.prepare(of, platform), platform.launcher, list[list[Any]]()

        def launch(count: int) -> None:
            prepared.launch(count)
            launcher.synchronize()
            places = [buffers(platform.memory, of, rank)[1] for rank in range(2)]
            results.append([launcher.fetch(rank, place, of.nbytes).copy() for rank, place in enumerate(places)])
            for rank, place in enumerate(places):
                launcher.store(rank, place, results[-1 - lag if len(results) > lag else -1][rank])

        return replace(prepared, launch=launch)

    monkeypatch.setattr(measured, "implementations", lambda: {"nccl": replace(nccl, prepare=prepare)})
    assert [found.what for found in carried_out(graph=False).differences] == [CALLS]


# Rows.


def test_a_difference_has_its_element_both_values_and_the_numbers_between_them() -> None:
    for dtype in (known for known in DATATYPES.values() if known.kind == "float"):
        before = dtype.encode(np.array([1.0, 1.0, -1.0, 2.0, 0.5]))
        got = before.copy()
        whole = got.view(f"i{dtype.itemsize}")
        whole[[1, 2, 3]] += (3, 5, 1)
        found = difference(CALLS, "call 2", dtype, before, got)
        assert found
        assert (found.index, found.before, found.elements, found.ulps) == (1, "1.0", 3, 5), dtype.name
        assert float(found.got) > 1
        assert difference(CALLS, "", dtype, before, before) is None
        around_zero = dtype.encode(np.array([-0.0])), dtype.encode(np.array([0.0]))
        zeros = difference(CALLS, "", dtype, around_zero[0], dtype.encode(np.array([1.0])))
        signs = difference(CALLS, "", dtype, *around_zero)
        assert zeros
        assert signs
        assert signs.ulps == 0
        assert zeros.ulps == int(dtype.encode(np.array([1.0])).view(f"i{dtype.itemsize}")[0])


def test_elements_of_which_a_row_has_the_bits_are_the_same_in_every_size() -> None:
    longest = places(2**20).tolist()
    assert longest == sorted(set(longest))
    assert len(longest) < 200
    for count in (1, 7, 8, 9, 100, 1023, 1024, 1025, 5000):
        chosen = places(count).tolist()
        assert chosen == [place for place in longest if place < count]
        assert sum(place >= count // 2 for place in chosen) >= min(4, count - count // 2), "of all parts of the array"


def test_starts_are_one_row_with_what_differs_in_any_of_them_and_between_them() -> None:
    in_call = BitDifference(CALLS, "call 3 of 50, rank 1", 7, "1.0", "2.0", 1, 5)
    other = replace(row(digest="b", calls=1, differences=(in_call,)), bits=(1, 9, *row().bits[2:]))
    joined = row().joined([row(), row(), other])
    assert joined.compared == (RANKS, CALLS, RESTART)
    assert {found.what for found in joined.differences} == {CALLS, RESTART}
    (restart,) = (found for found in joined.differences if found.what == RESTART)
    assert (restart.index, restart.elements) == (1, 1)
    assert restart.where.startswith("start 3 of 3")
    assert joined.calls == row().calls, "later starts add once"
    assert "call 3 of 50, rank 1: element 7 is 1.0, not 2.0" in joined.wrong
    alone = row().joined([row()])
    assert (alone.compared, alone.differences) == ((RANKS, CALLS), ())
    elsewhere = row().joined([row(), row(digest="b")]).differences
    assert [(found.what, found.elements) for found in elsewhere] == [(RESTART, 0)]
    assert to_result(to_line(joined)) == joined


def test_where_auto_changes_its_kernel_the_sizes_say_so() -> None:
    small = row("auto", nbytes=4096, note=Note(picked="one-shot-ll"))
    bits = (5, *places(16384).tolist()[1:])
    large = row("auto", nbytes=65536, note=Note(picked="ring-flags"), bits=bits)
    same = row("auto", nbytes=262144, note=Note(picked="ring-flags"), bits=(5, *places(65536).tolist()[1:]))
    (lines,) = kinds([small, large, same]).values()
    (pair,) = lines[0].found
    assert pair[0] is large
    text = "\n".join(tables([small, large, same]))
    assert "64 KiB by ring-flags" in text
    assert "after 4 KiB by one-shot-ll" in text


def test_implementations_with_the_same_bits_are_a_group() -> None:
    rows = [row(name, digest, nbytes) for nbytes in (4096, 8192) for name, digest in (("mpi", "a"), ("one-shot", "a"))]
    rows += [row("ring-flags", "b"), row("ring-flags", "a", 8192), row("one-shot-ll", "a")]
    lines = [line.split() for line in tables(rows)]
    start = next(place for place, words in enumerate(lines) if words[:2] == ["bits", "A"])
    cells = {words[0]: words[1:] for words in lines[start + 1 : start + 5]}
    assert cells == {
        "mpi": ["A", "2/2", "1/2"],
        "one-shot": ["A", "2/2", "1/2"],
        "ring-flags": ["B", "1/2", "2/2"],
        "one-shot-ll": ["A", "1/1", "0/1"],
    }


def test_sums_that_are_none_are_wrong_unless_a_wire_is_narrow() -> None:
    far = ERROR._replace(of_bound=1e9, accumulation="narrower")
    assert row(error=far).outcome is Outcome.WRONG
    assert row("narrow-e4m3", error=far).outcome is Outcome.OK
    assert row("narrow-e4m3", error=far._replace(of_wire=1.1)).outcome is Outcome.WRONG
    assert row("nccl@symmetric", error=ERROR._replace(of_bound=1.9)).right, "additions may truncate"
    assert not row("nccl@symmetric", error=ERROR._replace(of_bound=2.1)).right


def test_irreproducible_sums_say_nothing_of_sizes_and_skipped_ones_are_named() -> None:
    in_call = BitDifference(CALLS, "call 2 of up to 50, rank 1", 0, "1.0", "2.0", 1, 5)
    other = row(nbytes=8192, bits=(7, *row(nbytes=8192).bits[1:]), differences=(in_call,), calls=2)
    (line,) = next(iter(kinds([row(), other]).values()))
    assert (line.same(CALLS), line.same(SIZE)) == ("differ", "same")
    (alone,) = next(iter(kinds([row(), row(law="wide", calls=9)]).values()))
    errors = [row(nbytes=8192, error=ERROR._replace(median=median, most=16.0)) for median in (0.5, 1.0, 4.0)]
    (several,) = next(iter(kinds([row(), *errors]).values()))
    assert (several.errors(4096), several.errors(8192), several.errors(1)) == ("0.25 8", "1 16", None)
    assert (alone.same(CALLS), alone.same(SIZE)) == ("9 same", None), "of one size nothing is known"
    skipped = [Skipped(replace(CASE, nbytes=nbytes), "one-shot-ll", "cpu", "too large") for nbytes in (4096, 8192)]
    assert list(tables([row(), *skipped]))[-1] == "skipped in 2 cases: one-shot-ll, too large"


# Two runs.


def test_two_runs_tell_from_which_size_on_bits_are_others(here: Command, tmp_path: Path) -> None:
    sizes = (4096, 65536, 1048576, 4194304)
    rows = [row("nccl", nbytes=nbytes, law=law) for nbytes in sizes for law in ("normal", "wide")]
    new = [replace(of, digest="b") if of.case.nbytes > 65536 and of.case.work == Bits("wide") else of for of in rows]
    twice = row("arrival", "c", differences=(BitDifference(RESTART, "start 2 of 2"),))
    write_run(tmp_path / "base", *rows, twice)
    write_run(tmp_path / "new", *new, replace(twice, digest="d"))
    done = here("compare", "base", "new", "--json", "answer.json")
    assert done.returncode == 0, done.stderr
    assert "arrival: wrong in BASE, wrong in NEW" in done.stdout.partition("not compared")[2]
    (comparison,) = json.loads((tmp_path / "answer.json").read_text())["comparisons"]
    assert comparison["bits"] == [
        "nccl (allreduce, float, sum, 4 ranks): different bits in NEW at 1 MiB to 4 MiB",
        "6 sums of random values with the same bits in both",
    ]


def test_other_commands_read_such_a_run_or_refuse_it_in_a_line(here: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "run", row(), row(nbytes=65536))
    for words in (("report", "run", "--out", "page.html"), ("runs", "."), ("compare", "run", "run")):
        assert here(*words).returncode == 0, words
    assert "the same bits in 50 calls" in (tmp_path / "page.html").read_text()
    for words in (("export", "run", "--to", "csv"), ("predict", "--fit", "run"), ("plot", "run")):
        done = here(*words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), words
        assert "nothing to" in done.stderr
