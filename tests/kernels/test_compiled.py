"""What NVIDIA's assembler makes of the kernels: the instructions that reach memory, on sm_75 and later.

One architecture is read by `make test`, every one by `make test-all`; no wheel has a disassembler for sm_70.
"""

import re
from collections import Counter

import pytest

from collbench.algorithms import narrow, ring
from collbench.datatypes import WIRES, Wire
from collbench.platforms import compiler
from collbench.platforms.checking import WITH_DELAYS
from collbench.platforms.layout import WINDOW_HEAD
from collbench.platforms.tracelog import TRACED
from tests.conftest import ROOT
from tests.kernels.test_nvrtc import assert_no_spills, bounds_of
from tools.kernels import facts, nvrtc, sass
from tools.kernels.facts import ARRAY, PRIMITIVES, VECTORS
from tools.kernels.nvrtc import ONE_DEVICE, PIPELINED, RANKS_MEET, compiled
from tools.kernels.sass import READ, listing, memory_instructions, of_ranks, together

PAGE = (ROOT / "docs" / "kernels.md").read_text()
STRONG = {"MEMBAR.ALL.SYS", "ST.E.STRONG.SYS", "LD.E.STRONG.SYS"}
OWN = {"MEMBAR.ALL.GPU", "ATOM.E.ADD.STRONG.GPU"}  # of the blocks of one rank, which are counted
FENCES = {  # by kernel, of the form with merged publications: one a hop; elsewhere one for every flag
    "ring_allreduce": (4, 8),
    **dict.fromkeys(("ring_reducescatter", "ring_allgather", "ring_broadcast"), (3, 4)),
    **dict.fromkeys(("one_shot", "two_shot", "parameter_server", "narrow_allreduce"), (2, 2)),
    **dict.fromkeys(("one_shot_ll", "ring_ll_allreduce"), (0, 0)),
}
MACHINES = pytest.mark.parametrize(
    "arch", [arch if arch == 90 else pytest.param(arch, marks=pytest.mark.full) for arch in READ]
)


def scope_of(more: tuple[str, ...]) -> str:
    """What the kernels of a rank's peers see is at this scope."""
    return "GPU" if "-DONE_DEVICE" in more else "SYS"


def test_a_primitive_becomes_these_instructions() -> None:
    for arch in (75, *READ):
        found = memory_instructions(facts.compiled_primitives(arch))
        for name, primitive in PRIMITIVES.items():
            assert found[f"call_{name}"] == primitive.instructions(arch), (name, arch)


@MACHINES
def test_kernels_reach_memory_by_the_primitives_alone(arch: int) -> None:
    for file, more, program in of_ranks(arch):
        packets, scope = "packets.cuh" in (compiler.folder() / file).read_text(), scope_of(more)
        found = memory_instructions(program)
        assert found.keys() == set(compiler.entries(file))
        for name in found:
            words = set(found[name])
            strong = {word for word in words if "STRONG" in word or word.startswith("MEMBAR")}
            reached = {word.replace(f".{scope}", ".SYS") for word in strong - OWN}
            assert {"ST.E.STRONG.SYS", "LD.E.STRONG.SYS"} <= reached, (name, more)
            assert reached - STRONG == (VECTORS if packets else set()), (name, more)
            assert packets or words >= ARRAY, (name, more)
            weak = words - strong - {sass.BARRIER, "CCTL.IVALL"}
            assert all(re.fullmatch(r"(LD|ST)G\.E(\.U8|\.U16|\.64|(\.EF)?\.128)?", word) for word in weak), (name, weak)


@MACHINES
def test_a_kernel_has_no_more_fences_and_barriers_than_it_publishes(arch: int) -> None:
    """A ring with merged publications has one fence a hop; who gives up, or counts the own blocks, has none of these.

    A hop of the ring waits once for data and room together, and has a barrier there and one before it publishes.
    """
    for _, more, program in of_ranks(arch):
        if set(more) & set(ONE_DEVICE):
            continue  # there loops of hops are unrolled
        for name, words in memory_instructions(program).items():
            fences = FENCES[name]["-DMERGED" not in more]
            assert words.count("MEMBAR.ALL.SYS") == fences, (name, more)
            if re.fullmatch(r"ring_(?!ll).*", name):
                only_waits = name == "ring_allreduce" and "-DMERGED" in more  # the last hop, of what was handed over
                assert words.count(sass.BARRIER) == 2 * fences + 1 + only_waits, (name, more)


@MACHINES
def test_every_flag_is_stored_behind_a_fence(arch: int) -> None:
    for _, more, program in of_ranks(arch):
        scope = scope_of(more)
        fence, store, look = f"MEMBAR.ALL.{scope}", f"ST.E.STRONG.{scope}", f"LD.E.STRONG.{scope}"
        for name, words in memory_instructions(program).items():
            order = [word for word in words if word != "CCTL.IVALL"]
            before = [order[i - 1] for i, word in enumerate(order) if word == store]
            assert set(before) <= {fence, look, *([store] if "-DMERGED" in more else [])}, (name, more)
            assert (store in before) == ("-DMERGED" in more), (name, more)


@MACHINES
def test_a_wait_looks_at_its_flag_first_and_at_the_error_word_when_that_is_late(arch: int) -> None:
    for _, more, program in of_ranks(arch):
        look = f"LD.E.STRONG.{scope_of(more)}"
        packet = look.replace(".E.", ".E.128.")
        for name, code in listing(program).items():
            words = [word for word, _ in code if re.match(r"LD\.|CCTL|BRA", word)]
            errors = [i for i, word in enumerate(words) if word == look and words[i + 1] != "CCTL.IVALL"]
            waits = [i for i, word in enumerate(words) if word in (look, packet) and i not in errors]
            assert errors, (name, more)
            for error in errors:
                assert "BRA" in words[max(i for i in waits if i < error) : error], (name, more)


@MACHINES
def test_loads_are_on_the_way_together(arch: int) -> None:
    """Of a pipelined ring those of the FIFO and of the own input, before the first store; else the two of one sum.

    A direct kernel that knows its ranks asks all of them at once: sixteen loads, less two where registers are short.
    """
    for dtype in ("float", "half", "bfloat16", "double", "int8") if arch != 90 else ("float", "int8"):
        redop = "sum" if dtype == "float" else "avg"
        programs = together(compiled("ring.cu", more, dtype, redop, arch) for more in ((), PIPELINED))
        for program, loads in zip(programs, (2, 2 * ring.IN_FLIGHT), strict=True):
            assert sass.loads_in_flight(listing(program)["ring_allreduce"], "LDG.E.128") == loads, dtype
    for ranks in (2, 4, 8) if arch != 90 else (8,):
        direct, packets = together(nvrtc.known(file, ranks, arch) for file in ("direct.cu", "one_shot_ll.cu"))
        for name in ("one_shot", "two_shot"):
            assert 14 <= sass.loads_in_flight(listing(direct)[name], "LDG.E.128") <= 16, (name, ranks)
        assert sass.loads_in_flight(listing(packets)["one_shot_ll"], "LD.E.128.STRONG.SYS") == ranks


@MACHINES
def test_a_ring_reads_its_input_and_keeps_its_result_past_the_cache(arch: int) -> None:
    """Once a hop that does so, and nothing else: what came from another rank, or goes to one, stays in the cache.

    Hops: alone (own, kept), send (own), add and send (own), complete (own, kept), pass on (kept), end (kept).  The last
    two keep nothing where pieces are handed straight into results.
    """
    for more, kept in (((), 4), (("-DMERGED",), 2)):
        words = memory_instructions(compiled("ring.cu", more, arch=arch))["ring_allreduce"]
        assert words.count("LDG.E.EF.128") == 4, more
        assert words.count("STG.E.EF.128") == kept, more
        assert words.count("LDG.E.128") == (3 if more else 4), more
        assert words.count("STG.E.128") == 4, more


def reached(code: tuple[tuple[str, str], ...], word: str) -> Counter[int]:
    """How often such an access is so many bytes behind its register; less what windows have ahead of their boxes."""
    places = [re.search(r"\[R\d+\.64(?:\+(0x[0-9a-f]+))?\]", operands) for name, operands in code if name == word]
    return Counter(int(place[1] or "0", 16) % WINDOW_HEAD for place in places if place)


def same(reached: Counter[int], places: list[int]) -> int:
    (times,) = {reached[place] for place in places}
    return times


def assert_without_gaps(wire: Wire, code: tuple[tuple[str, str], ...]) -> None:
    """What stands beside the codes of four groups is one store, and so are the codes of topk."""
    loads, stores = reached(code, "LDG.E.128"), reached(code, "STG.E.128")
    arrays = [32 * 16 * k for k in range(1, 4)]
    assert same(loads, arrays) >= 3, "to send at the start, to send later, to add"
    assert same(stores, arrays) == 2, "of the own sums, of the others'"
    if wire.top_k:
        boxes = [wire.codes * 4 * k for k in range(1, 4)]
        assert same(loads, boxes) >= 2
        assert same(stores, boxes) == 0
        return
    lane = wire.codes // narrow.TEAM
    suffix, boxes = {4: "", 8: ".64"}[lane], [32 * lane * k for k in range(2, 4)]
    assert same(reached(code, f"STG.E{suffix}"), boxes) == 3, "inputs at the start, inputs later, sums"
    assert same(reached(code, f"LDG.E{suffix}"), boxes) >= 2
    assert reached(code, "STG.E.U8").total() == (2 * 3 if wire.side else 0), "of tiles, and of what is left"
    assert not (loads + stores).keys() & {16 * k for k in range(1, 32)}, "no thread has two quads of a group"


@MACHINES
def test_a_warp_reaches_lines_without_gaps(arch: int) -> None:
    for name in WIRES if arch != 90 else ("bfloat16", "topk"):
        (code,) = listing(nvrtc.known("narrow.cu", 2, arch, f"-DWIRE={WIRES[name].code}")).values()
        assert_without_gaps(WIRES[name], code)


@pytest.mark.parametrize("programs", [[("ring.cu", PIPELINED)], pytest.param(RANKS_MEET, marks=pytest.mark.full)])
@pytest.mark.timeout(600)
def test_a_log_or_a_delay_spills_nothing_and_orders_nothing(programs: list[tuple[str, tuple[str, ...]]]) -> None:
    for file, more in programs:
        for option, clocks in ((TRACED, ("%globaltimer", "%clock64")), (WITH_DELAYS, ("%globaltimer",))):
            plain, other = together([compiled(file, more), compiled(file, (*more, option))])
            assert_no_spills(other, bounds_of(file), (file, more, option))
            before, after = (memory_instructions(program) for program in (plain, other))
            for name in before:
                strong = [{word for word in words[name] if "STRONG" in word} for words in (before, after)]
                assert strong[0] == strong[1], (name, more, option)
            assert all(clock in other.ptx for clock in clocks), (file, more, option)
            assert "%globaltimer" not in plain.ptx, (file, more)
