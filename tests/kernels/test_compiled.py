"""What NVIDIA's assembler makes of the kernels: registers, no spills, and the instructions that reach memory.

Registers and spills are read for sm_70 too.  Its instructions are not: no wheel has a disassembler for it, so that of
the primitives is read for sm_75 instead, and sm_70 has only its PTX tested (test_nvrtc.py).
"""

import re
from collections import Counter
from collections.abc import Iterable

import pytest

from collbench.implementations import narrow, ring_pipelined
from collbench.platforms import kernels
from collbench.platforms.gpu import launch
from collbench.platforms.layout import WINDOW_HEAD, world_type
from collbench.platforms.stress import HESITATES
from collbench.platforms.tracelog import TRACED
from collbench.wires import WIRES, Wire
from tests.conftest import ROOT
from tests.kernels.test_nvrtc import (
    ARCHITECTURES,
    ONE_DEVICE,
    PIPELINED,
    PROGRAMS,
    RANKS_MEET,
    compiled,
    each,
)
from tools.kernels import facts, sass
from tools.kernels.facts import ARRAY, PRIMITIVES, VECTORS
from tools.kernels.reading import (
    DTYPES,
    LOCAL,
    PAIRS,
    RANKS,
    READ,
    RINGS,
    direct,
    listing,
    local,
    memory_instructions,
    narrow_listing,
    packets,
    primitives,
    ring,
)

REGISTERS = 65536  # of a multiprocessor, on every one of these architectures
SHARED = 48 << 10  # bytes that a block may have without asking
BOUNDS = re.compile(r"__launch_bounds__\((\d+), 1\)\s+(\w+)\(")
UNBOUNDED = 1024  # threads that a kernel without bounds may be launched with
FEW = [pair for pair in PAIRS if pair[0] in ("float", "int8")]  # for kernels that know their ranks besides
SPILLS = [
    (file, more, *pair)
    for file, more in PROGRAMS
    for pair in (FEW if more[-len(ONE_DEVICE) :] == ONE_DEVICE else PAIRS)
]
STRONG = {"MEMBAR.ALL.SYS", "ST.E.STRONG.SYS", "LD.E.STRONG.SYS"}
OWN = {"MEMBAR.ALL.GPU", "ATOM.E.ADD.STRONG.GPU"}  # of the blocks of one rank, which are counted


@pytest.mark.parametrize(("file", "more", "dtype", "redop", "arch"), SPILLS)
def test_nothing_is_spilled_and_a_whole_block_finds_its_registers(
    file: str, more: tuple[str, ...], dtype: str, redop: str, arch: int
) -> None:
    """Nothing in local memory at all: no stack, no spills, in any kernel."""
    bounds = {name: int(threads) for threads, name in BOUNDS.findall(kernels.source(file))}
    assert bounds or (file, more) not in RANKS_MEET
    resources = compiled(file, more, dtype, redop, arch).resources
    assert sorted(resources) == sorted(kernels.entries(file))
    for name, taken in resources.items():
        assert (taken.stack, taken.spill_stores, taken.spill_loads) == (0, 0, 0), name
        assert 0 < taken.registers * bounds.get(name, UNBOUNDED) <= REGISTERS, name
        assert taken.shared <= SHARED, name


@pytest.mark.parametrize("arch", [75, *READ])
@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_primitive_becomes_these_instructions(name: str, arch: int) -> None:
    """All that reach memory, in this order."""
    assert memory_instructions(primitives(arch))[f"call_{name}"] == PRIMITIVES[name].instructions(arch)


@each(RANKS_MEET)
@pytest.mark.parametrize("arch", READ)
def test_kernels_reach_memory_by_the_primitives_alone(file: str, more: tuple[str, ...], arch: int) -> None:
    """Never through the cache for constants, nor to local memory; and arrays or packets by sixteen bytes."""
    found = memory_instructions(compiled(file, more, arch=arch))
    packets, scope = "packets.cuh" in (kernels.folder() / file).read_text(), scope_of(more)
    for name in kernels.entries(file):
        words = set(found[name])
        strong = {word for word in words if "STRONG" in word or word.startswith("MEMBAR")}
        assert {"ST.E.STRONG.SYS", "LD.E.STRONG.SYS"} <= at_system_scope(strong - OWN, scope), name
        assert at_system_scope(strong - OWN, scope) - STRONG == (VECTORS if packets else set()), name
        assert packets or words >= ARRAY, name
        weak = words - strong - {sass.BARRIER, "CCTL.IVALL"}
        assert all(re.fullmatch(r"(LD|ST)G\.E(\.U8|\.U16|\.64|\.128)?", word) for word in weak), (name, weak)


def scope_of(more: tuple[str, ...]) -> str:
    """What the kernels of a rank's peers see is at this scope."""
    return "GPU" if "-DONE_DEVICE" in more else "SYS"


def at_system_scope(words: Iterable[str], scope: str) -> set[str]:
    """The same words as between devices; one of another scope than it should have stays as it is."""
    return {word.replace(f".{scope}", ".SYS") for word in words}


FENCES = {  # by kernel, of the form with merged publications: one a hop; elsewhere one for every flag
    "ring_allreduce": (5, 8),
    "ring_reducescatter": (3, 4),
    "ring_allgather": (3, 4),
    "ring_broadcast": (3, 4),
    "one_shot": (2, 2),
    "two_shot": (2, 2),
    "parameter_server": (2, 2),
    "one_shot_ll": (0, 0),
    "ring_ll_allreduce": (0, 0),
    "narrow_allreduce": (2, 2),
}


@each(
    [(file, more) for file, more in RANKS_MEET if not set(more) & set(ONE_DEVICE)]
)  # there loops of hops are unrolled
@pytest.mark.parametrize("arch", READ)
def test_a_kernel_has_no_more_fences_than_it_publishes(file: str, more: tuple[str, ...], arch: int) -> None:
    """A ring with merged publications has one a hop; who gives up, or counts the own blocks, has none of these."""
    for name, words in memory_instructions(compiled(file, more, arch=arch)).items():
        assert words.count("MEMBAR.ALL.SYS") == FENCES[name]["-DMERGED" not in more], name


BARRIERS = {  # one before each publication and one behind each wait, merged or not, and one at the end
    "ring_allreduce": (2 * 5 + 1, 2 * 8 + 1),
    "ring_reducescatter": (2 * 3 + 1, 2 * 4 + 1),
    "ring_allgather": (2 * 3 + 1, 2 * 4 + 1),
    "ring_broadcast": (2 * 3 + 1, 2 * 4 + 1),
}


@pytest.mark.parametrize("more", [(), PIPELINED], ids=["apart", "merged"])
@pytest.mark.parametrize("arch", READ)
def test_a_hop_of_the_pipelined_ring_waits_once(more: tuple[str, ...], arch: int) -> None:
    """For data and room together, as it publishes both together."""
    for name, words in memory_instructions(compiled("ring.cu", more, arch=arch)).items():
        assert words.count(sass.BARRIER) == BARRIERS[name]["-DMERGED" not in more], name


@each(RANKS_MEET)
@pytest.mark.parametrize("arch", READ)
def test_every_flag_is_stored_behind_a_fence(file: str, more: tuple[str, ...], arch: int) -> None:
    """The merged publication, and it alone, has one for two flags; the error word, known by its look before, none."""
    scope = scope_of(more)
    fence, store, look = f"MEMBAR.ALL.{scope}", f"ST.E.STRONG.{scope}", f"LD.E.STRONG.{scope}"
    for name, words in memory_instructions(compiled(file, more, arch=arch)).items():
        order = [word for word in words if word != "CCTL.IVALL"]
        before = [order[i - 1] for i, word in enumerate(order) if word == store]
        assert set(before) <= {fence, look, *([store] if "-DMERGED" in more else [])}, name
        assert (store in before) == ("-DMERGED" in more), name


@each(RANKS_MEET)
@pytest.mark.parametrize("arch", READ)
def test_a_wait_looks_at_its_flag_first_and_at_the_error_word_when_that_is_late(
    file: str, more: tuple[str, ...], arch: int
) -> None:
    """Between a look at a flag or packet and the next one at the error word a branch leaves the wait."""
    look = f"LD.E.STRONG.{scope_of(more)}"
    packet = look.replace(".E.", ".E.128.")
    for name, code in listing(compiled(file, more, arch=arch)).items():
        words = [word for word, _ in code if re.match(r"LD\.|CCTL|BRA", word)]
        errors = [i for i, word in enumerate(words) if word == look and words[i + 1] != "CCTL.IVALL"]
        waits = [i for i, word in enumerate(words) if word in (look, packet) and i not in errors]
        assert errors, name
        for error in errors:
            assert "BRA" in words[max(i for i in waits if i < error) : error], name


@pytest.mark.parametrize("arch", READ)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_pipelined_ring_has_its_loads_on_the_way_together(dtype: str, arch: int) -> None:
    """Of the FIFO and of the own input, before the first store; without that, the two of one sum."""
    for more, loads in zip(RINGS, (2, 2 * ring_pipelined.IN_FLIGHT), strict=True):
        code = listing(ring(more, dtype, arch))["ring_allreduce"]
        assert sass.loads_in_flight(code, "LDG.E.128") == loads


@pytest.mark.parametrize(("dtype", "redop", "arch"), [("float", "sum", 90), ("int8", "avg", 100)])
def test_a_kernel_has_the_same_code_without_the_others_of_its_file(dtype: str, redop: str, arch: int) -> None:
    """So it may be looked at alone."""
    alone = compiled("ring.cu", PIPELINED, dtype, redop, arch, ("ring_allreduce",))
    assert alone.resources.keys() == {"ring_allreduce"}
    assert listing(alone)["ring_allreduce"] == listing(ring(PIPELINED, dtype, arch))["ring_allreduce"]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("arch", READ)
def test_a_direct_kernel_that_knows_its_ranks_asks_all_of_them_at_once(ranks: int, arch: int) -> None:
    """Sixteen loads of sixteen bytes, whatever their number, less two where registers are short; packets of all."""
    for name in ("one_shot", "two_shot"):
        assert 14 <= sass.loads_in_flight(listing(direct(ranks, arch))[name], "LDG.E.128") <= 16, name
    code = listing(packets(ranks, arch))["one_shot_ll"]
    assert sass.loads_in_flight(code, "LD.E.128.STRONG.SYS") == ranks


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize(("dtype", "redop"), [("float", "sum"), ("int8", "avg"), ("half", "avg"), ("uint64", "avg")])
def test_nothing_is_spilled_for_any_number_of_ranks_that_is_known(ranks: int, dtype: str, redop: str) -> None:
    """Four are among the programs; with sixteen packs in registers there are few left."""
    more = launch.defines(ranks, one_device=False)
    for name, taken in compiled("direct.cu", more, dtype, redop).resources.items():
        assert (taken.stack, taken.spill_stores, taken.spill_loads) == (0, 0, 0), name
        assert taken.registers * 512 <= REGISTERS, name


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize("more", [(), (narrow.FEEDBACK,), launch.defines(8, one_device=False)], ids=["", "fed", "8"])
@pytest.mark.parametrize("arch", [70, 100])
def test_nothing_of_a_wire_is_spilled(wire: Wire, more: tuple[str, ...], arch: int) -> None:
    """A thread holds four parts of groups, and what becomes of them."""
    options = (f"-DWIRE={wire.code}", *more)
    (taken,) = compiled("narrow.cu", options, arch=arch).resources.values()
    assert (taken.stack, taken.spill_stores, taken.spill_loads) == (0, 0, 0)
    assert taken.registers * narrow.THREADS <= REGISTERS


def reached(code: tuple[tuple[str, str], ...], word: str) -> Counter[int]:
    """How often such an access is so many bytes behind its register; less what windows have ahead of their boxes."""
    places = [re.search(r"\[R\d+\.64(?:\+(0x[0-9a-f]+))?\]", operands) for name, operands in code if name == word]
    return Counter(int(place[1] or "0", 16) % WINDOW_HEAD for place in places if place)


def same(reached: Counter[int], places: list[int]) -> int:
    """How often these are reached, all equally."""
    (times,) = {reached[place] for place in places}
    return times


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize("arch", READ)
def test_a_warp_reaches_lines_without_gaps(wire: Wire, arch: int) -> None:
    """Accesses of a tile follow each other by as much as 32 lanes have, so lanes lie side by side; fp32 by 16 bytes.

    What stands beside the codes of four groups is one store, and so are the codes of topk.
    """
    code = narrow_listing(wire, arch)
    loads, stores = reached(code, "LDG.E.128"), reached(code, "STG.E.128")
    arrays = [32 * 16 * k for k in range(1, 4)]
    assert same(loads, arrays) >= 3, "to send at the start, to send later, to add"
    assert same(stores, arrays) == 2, "of the own sums, of the others'"
    if wire.kept:
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


@pytest.mark.parametrize("arch", READ)
def test_nothing_of_stores_past_the_caches_is_left_on_a_gpu(arch: int) -> None:
    """A piece is moved by one loop, not by one of two that do the same: a load for each part that a hop takes."""
    words = memory_instructions(compiled("ring.cu", arch=arch))["ring_allreduce"]
    hops = "1 alone, 1 to send, 2 to add and send, 2 to add and keep, 1 to pass on, 1 to keep"
    assert words.count("LDG.E.128") == 8, hops


def test_a_world_is_as_long_as_its_ranks_need() -> None:
    """Every launch carries it; the assembler says how many bytes of parameters a kernel has."""
    for ranks in (2, 8, 9, 128):
        more = launch.defines(ranks, one_device=False)
        (nbytes,) = re.findall(r"ring_ll_allreduce_param_0\[(\d+)\]", compiled("ring_ll.cu", more).ptx)
        assert int(nbytes) == world_type(launch.room_for(ranks)).itemsize
        assert ranks <= launch.room_for(ranks)
    assert world_type(launch.room_for(8)).itemsize < 256


def test_the_page_has_these_facts() -> None:
    """Counts of registers are compared where the page is of the compiler that is installed; another may differ."""
    page = (ROOT / "docs" / "kernels.md").read_text()
    assert facts.instructions_table() in page
    if f"NVRTC {facts.version()}" in page:
        assert facts.registers_table() in page
    else:
        for file, more in PROGRAMS:
            assert all(f"| `{name}` |" in page for name in kernels.entries(file)), (file, more)


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_local_memory_is_seen_where_there_is_some(name: str, arch: int) -> None:
    """The tests above can fail."""
    result = local(name, arch)
    assert result.resources["f"].stack > 0
    if arch in READ:
        assert {word.partition(".")[0] for word in memory_instructions(result)["f"]} >= {"STL", "LDL"}


@each(RANKS_MEET)
@pytest.mark.parametrize(("option", "clocks"), [(TRACED, {"%globaltimer", "%clock64"}), (HESITATES, set())])
def test_a_log_or_a_hesitation_spills_nothing_and_orders_nothing(
    file: str, more: tuple[str, ...], option: str, clocks: set[str]
) -> None:
    """Such kernels have the same accesses between ranks, and clocks."""
    bounds = {name: int(threads) for threads, name in BOUNDS.findall(kernels.source(file))}
    plain, other = compiled(file, more), compiled(file, (*more, option))
    for name, taken in other.resources.items():
        assert (taken.stack, taken.spill_stores, taken.spill_loads) == (0, 0, 0), name
        assert taken.registers * bounds[name] <= REGISTERS, name
        strong = [
            [word for word in memory_instructions(program)[name] if "STRONG" in word] for program in (plain, other)
        ]
        assert set(strong[0]) == set(strong[1]), name
    assert all(clock in other.ptx for clock in {"%globaltimer", *clocks})
    assert "%globaltimer" not in plain.ptx
