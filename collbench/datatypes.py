"""Element types, wire formats, reductions, and inputs with exactly known results.

Inputs are a pure function of (seed, rank, index).  Every rank computes its expected result without communication, and
a swapped rank, a shifted chunk or a stale buffer cannot pass.  Inputs are small integers, so every partial sum is exact
in any order (as in nccl-tests' `verifiable.cu`), and results are compared bit for bit.  These functions are the
definition; `kernels/recipe.cuh` computes the same on the device.

A wire format is narrower than its elements, so results may have errors up to `bound`.  `kernels/bound.cuh` derives the
bound and computes it on the device, independently of the kernels under test.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.errors import unknown
from collbench.records import written_by_name

Array = NDArray[np.generic]
Words = NDArray[np.uint32]


@written_by_name(lambda name: find_datatype(name))
@dataclass(frozen=True)
class Datatype:
    """An element type: its names in nccl-tests, C++ and NumPy, and its precision."""

    name: str
    aliases: tuple[str, ...]
    storage: str  # NumPy dtype with the same bits; raw bits for bfloat16, which NumPy lacks
    kind: str  # "float", "int" or "uint"
    precision: int  # every integer of magnitude up to 2**precision is exact
    cpp: str  # the storage type in kernels/prelude.cuh

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return np.dtype(self.storage).itemsize

    def encode(self, values: Array) -> Array:
        """Return numbers (float64 or integers, exactly representable) as stored elements."""
        if self.name == "bfloat16":
            return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return values.astype(self.storage)

    def decode(self, stored: Array) -> Array:
        """Return stored elements as printable numbers."""
        if self.name == "bfloat16":
            return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return stored


DATATYPES = {
    datatype.name: datatype
    for datatype in (
        Datatype("float", ("float32", "fp32"), "float32", "float", 24, "float"),
        Datatype("double", ("float64", "fp64"), "float64", "float", 53, "double"),
        Datatype("half", ("float16", "fp16"), "float16", "float", 11, "half_t"),
        Datatype("bfloat16", ("bf16",), "uint16", "float", 8, "bfloat_t"),
        Datatype("int8", ("char",), "int8", "int", 7, "signed char"),
        Datatype("uint8", (), "uint8", "uint", 8, "unsigned char"),
        Datatype("int32", ("int",), "int32", "int", 31, "int"),
        Datatype("uint32", (), "uint32", "uint", 32, "unsigned"),
        Datatype("int64", (), "int64", "int", 63, "long long"),
        Datatype("uint64", (), "uint64", "uint", 64, "unsigned long long"),
    )
}

FOREIGN_DATATYPES = {
    datatype.name: datatype
    for datatype in (
        Datatype("f8e4m3", ("fp8_e4m3", "float8_e4m3fn"), "uint8", "float", 4, ""),
        Datatype("f8e5m2", ("fp8_e5m2", "float8_e5m2"), "uint8", "float", 3, ""),
    )
}
"""Types in reports of other tools only; collbench cannot measure them."""


@written_by_name(lambda name: _reduction_or_none(name))
@dataclass(frozen=True)
class Reduction:
    """A reduction of elements; kernels/prelude.cuh and the NCCL binding switch on `code`."""

    name: str
    code: int  # ncclRedOp_t; NONE moves raw bits

    def ulps(self, datatype: Datatype) -> int:
        """Return the allowed distance from the exact result, in units in the last place."""
        # Libraries may multiply by a rounded 1/n first; nccl-tests allows the same two ulps.
        return 2 if self.name == "avg" and datatype.kind == "float" else 0


NONE = Reduction("none", -1)
REDUCTIONS = {
    reduction.name: reduction
    for reduction in (
        Reduction("sum", 0),
        Reduction("prod", 1),
        Reduction("max", 2),
        Reduction("min", 3),
        Reduction("avg", 4),
    )
}

FOREIGN_REDUCTIONS = {"mulsum": Reduction("mulsum", -2)}
"""Reductions of other tools: nccl-tests' sum of products with a scalar of each rank."""


def find_datatype(name: str) -> Datatype:
    """Return the datatype with that name or alias, including foreign ones; the error lists those of sweeps."""
    for datatype in (*DATATYPES.values(), *FOREIGN_DATATYPES.values()):
        if name == datatype.name or name in datatype.aliases:
            return datatype
    raise unknown("dtype", name, DATATYPES)


def find_reduction(name: str) -> Reduction:
    """Return the reduction with that name, including foreign ones; the error lists those of sweeps."""
    reductions = REDUCTIONS | FOREIGN_REDUCTIONS
    if name not in reductions:
        raise unknown("reduction", name, REDUCTIONS)
    return reductions[name]


def _reduction_or_none(name: str) -> Reduction:
    return NONE if name == NONE.name else find_reduction(name)


@dataclass(frozen=True)
class Recipe:
    """The five parameters of an element's value, apart from rank and index; kernels take the same."""

    seed: int
    ranks: int
    bits: int  # width of the random integers
    stride: int  # only every stride-th rank contributes to an element; 1 unless the sum of all would be inexact
    grades: int = 0  # in sums of floats, each group of 2**grades elements has its own magnitude; 0: one magnitude


def recipe(datatype: Datatype, reduction: Reduction, ranks: int, seed: int) -> Recipe:
    """Return the recipe of the widest random integers that keep this reduction over `ranks` ranks exact."""
    # A sum over the ranks needs this many more bits than a term.
    growth = (ranks - 1).bit_length()
    signed = datatype.kind != "uint"
    bits, stride = datatype.precision + signed, 1
    if reduction.name == "avg" or (reduction.name == "sum" and datatype.kind == "float"):
        bits -= growth
        if bits < 1 and reduction.name == "sum":
            bits, stride = 1, -(-ranks // 2**datatype.precision)
    elif reduction.name in ("min", "max") and datatype.kind == "float":
        bits -= 1
    elif reduction.name == "prod" and datatype.kind == "float":
        bits = datatype.precision - 2
    return Recipe(seed, ranks, max(0, min(bits, 31 if datatype.kind == "float" else 32)), stride)


def inputs(datatype: Datatype, reduction: Reduction, how: Recipe, rank: int, first: int, count: int) -> Array:
    """Return elements `first` to `first + count` of the send buffer of `rank`: storage values, shape (count,)."""
    element = _element_hash(how.seed, first, count)
    if reduction is NONE:
        return _wide(_contribution_hash(element, how.seed, rank), datatype.itemsize).view(datatype.storage)
    return datatype.encode(_values(datatype, reduction, how, rank, first, element))


def reduced(datatype: Datatype, reduction: Reduction, how: Recipe, first: int, count: int) -> Array:
    """Return elements `first` to `first + count` of the reduction over all ranks: storage values, shape (count,)."""
    element = _element_hash(how.seed, first, count)
    terms = [_values(datatype, reduction, how, rank, first, element) for rank in range(how.ranks)]
    if reduction.name == "avg":
        return datatype.encode(np.add.reduce(terms) // how.ranks)
    combine = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[reduction.name]
    return datatype.encode(combine.reduce(terms))


def _values(datatype: Datatype, reduction: Reduction, how: Recipe, rank: int, first: int, element: Words) -> Array:
    """Return the contribution of `rank` as exact numbers: float64, or wrapping integers as wide as the datatype."""
    if reduction.name == "avg":
        return _average_terms(datatype, how, rank, element)
    noise = _contribution_hash(element, how.seed, rank)
    if datatype.kind != "float":
        wide = _wide(noise, datatype.itemsize)
        odd = np.bitwise_or(wide, wide.dtype.type(reduction.name == "prod"))
        stored: Array = odd.view(datatype.storage)
        return stored
    if reduction.name == "prod":
        return _product_terms(how, rank, element, noise)
    values = _signed(noise, how.bits).astype(np.float64)
    if how.stride > 1:
        values[(np.uint32(rank) + element) % np.uint32(how.stride) != 0] = 0
    if not how.grades:
        return values
    # Each group of a rank loses up to seven bits, and seven of eight elements lose six more.
    groups = np.arange(first, first + len(values), dtype=np.uint64) >> np.uint64(how.grades)
    less = _contribution_hash(groups.astype(np.uint32), how.seed + 1, rank) & np.uint32(7)
    graded: Array = np.floor(values / 2.0 ** (less + np.where(element & np.uint32(7), 6, 0)))
    return graded


def _average_terms(datatype: Datatype, how: Recipe, rank: int, element: Words) -> Array:
    # Two neighbouring ranks share n times a small integer, so that sum and quotient are exact.
    chosen = _pick(element, how.ranks)
    share = (chosen == rank) * (how.ranks - 1) + ((chosen + 1) % how.ranks == rank)
    noise = _mix(element + np.uint32(1))
    quotient = _unsigned(noise, how.bits) if datatype.kind == "uint" else _signed(noise, how.bits)
    terms: Array = (quotient * share).astype(np.float64 if datatype.kind == "float" else datatype.storage)
    return terms


def _product_terms(how: Recipe, rank: int, element: Words, noise: Words) -> Array:
    # A rank has a mantissa, its next four neighbours a factor 2 or 1/2, and all have a sign.
    distance = (rank - _pick(element, how.ranks)) % how.ranks
    mantissa = 1.0 + _unsigned(noise, how.bits)
    factor = np.where(noise & 2, 2.0, 0.5)
    magnitude = np.where(distance == 0, mantissa, np.where(distance <= 4, factor, 1.0))
    result: Array = np.where(noise & 1, -magnitude, magnitude)
    return result


def _mix(words: Words) -> Words:
    """Scramble 32-bit words (the two-round `lowbias32` of C. Wellons' hash-prospector)."""
    words = words ^ (words >> np.uint32(16))
    words = words * np.uint32(0x7FEB352D)
    words = words ^ (words >> np.uint32(15))
    words = words * np.uint32(0x846CA68B)
    return words ^ (words >> np.uint32(16))


def _element_hash(seed: int, first: int, count: int) -> Words:
    index = np.arange(first, first + count, dtype=np.uint64)
    low, high = index.astype(np.uint32), (index >> np.uint64(32)).astype(np.uint32)
    return _mix(low ^ _mix(high + np.uint32(seed)))


def _contribution_hash(element: Words, seed: int, rank: int) -> Words:
    key = _mix(np.array([(rank * 0x9E3779B9 + seed) & 0xFFFFFFFF], dtype=np.uint32))
    return _mix(element ^ key)


def _pick(element: Words, ranks: int) -> NDArray[np.int64]:
    return ((element.astype(np.uint64) * np.uint64(ranks)) >> np.uint64(32)).astype(np.int64)


def _unsigned(noise: Words, bits: int) -> NDArray[np.int64]:
    return noise.astype(np.int64) >> np.int64(32 - bits)


def _signed(noise: Words, bits: int) -> NDArray[np.int64]:
    return _unsigned(noise, bits) - np.int64(2 ** (bits - 1) if bits else 0)


def _wide(noise: Words, itemsize: int) -> NDArray[np.unsignedinteger[Any]]:
    """Return random words of `itemsize` bytes: the low bits of the noise, or twice 32 bits."""
    if itemsize < 8:
        return noise.astype(f"u{itemsize}")
    return noise.astype(np.uint64) << np.uint64(32) | _mix(noise + np.uint32(1)).astype(np.uint64)


PREFIX = "narrow-"  # of the names of implementations with a wire format
GROUP = 32  # elements that share a scale, as in the OCP's microscaling formats
GRADES = 5  # log2(GROUP): graded recipes give each group its own magnitude
ROUNDING = 2.0**-24  # relative error of an fp32 addition
SLACK = 1.0 + 2.0**-10  # for rounding in the bound itself, which is computed in fp32

LEARNT = 2**12  # elements of the message in a study of a wire format's errors
STATE_NBYTES = 2 * 4 + 4 * 8  # bytes per element: the error of an input, the error of a sum, and the sum

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Wire:
    """A wire format of kernels/wires.cuh: its bytes on a link, and the error of one conversion.

    The error of an element is at most `relative` times its magnitude, or `absolute` times the power of two below the
    largest magnitude of its group, if that is larger.  A `top_k` format sends only the largest elements of a group.
    """

    name: str
    summary: str
    code: str  # the struct in kernels/wires.cuh
    codes: int  # bytes of a group
    side: int  # additional bytes of a group: a scale, or positions
    relative: float = 0.0
    absolute: float = 0.0
    top_k: int = 0

    @property
    def group(self) -> int:
        """Bytes of a group with its scale or positions."""
        return self.codes + self.side

    @property
    def nbytes(self) -> float:
        """Bytes on the wire per element."""
        return self.group / GROUP

    def lost(self, sizes: Numbers | float, most: float, next_: float) -> Numbers:
        """Return the maximum errors of elements, given the group's largest magnitude and the largest one not sent."""
        if self.top_k:
            return np.where(sizes <= next_ * SLACK, sizes, 0.0)
        return np.maximum(self.relative * sizes, self.absolute * below(most))

    def behind(self, sizes: Numbers) -> float:
        """Return the largest magnitude of a group that is not sent; 0 if all are sent."""
        return float(np.sort(sizes)[-self.top_k - 1]) if 0 < self.top_k < len(sizes) else 0.0


@dataclass(frozen=True)
class Lost:
    """Errors of many rounds, relative to the root mean square of the exact sums."""

    most: float  # the largest of all
    rms: float  # the root mean square of all
    bias: float  # the root mean square of the elements' mean errors, which averaging over rounds does not remove


@dataclass(frozen=True)
class Study:
    """Errors of a wire format on gradients with constant means and changing noise; `fed`: with error feedback."""

    rounds: int
    elements: int
    plain: Lost
    fed: Lost


def below(size: float) -> float:
    """Return the largest power of two that is at most *size*; 0 for 0."""
    return float(2.0 ** np.floor(np.log2(size))) if size else 0.0


def bound(wire: Wire, terms: Numbers) -> Numbers:
    """Return the maximum errors of a group's sums, shape (elements,); `terms` has shape (ranks, elements)."""
    ranks, sizes = len(terms), np.abs(terms)
    most, behind = sizes.max(axis=1), [wire.behind(row) for row in sizes]

    # All inputs except the owner's pass through the wire, and are added in fp32.
    errors = np.array([wire.lost(*row) for row in zip(sizes, most, behind, strict=True)])
    off = errors.sum(axis=0) - errors.min(axis=0) + ranks * ROUNDING * (sizes + errors).sum(axis=0)
    noise = sum(behind) if wire.top_k else sum(float(wire.lost(top, top, 0.0)) for top in most)
    noise += ranks * ROUNDING * 2 * most.sum()

    # The sum passes through the wire again, with its errors so far.
    exact = np.abs(terms.sum(axis=0))
    if wire.top_k:
        dropped = exact - off <= (wire.behind(exact) + noise) * SLACK
        off = np.where(dropped, np.maximum(off, exact), off)
    else:
        off += wire.lost(exact + off, float(exact.max()) + noise, 0.0)
    widened: Numbers = off * SLACK
    return widened


WIRES = {
    wire.name: wire
    for wire in (
        Wire("bfloat16", "bfloat16: half the bytes, the range of fp32", "Bfloat", 2 * GROUP, 0, relative=2.0**-8),
        Wire(
            "e4m3",
            "fp8 (e4m3) with a scale for 32 elements: a quarter of the bytes",
            "E4m3",
            GROUP,
            1,
            relative=2.0**-4,
            absolute=2.0**-17,
        ),
        Wire("topk", "the 4 largest of 32 elements, with their places: a sixth of the bytes", "TopK", 16, 4, top_k=4),
    )
}
EARLIER_WIRES = {"half": 2 + 1 / GROUP, "int8": 1 + 1 / GROUP}
"""Bytes per element of formats of earlier releases, for their run files."""


def wire_nbytes(implementation: str) -> float | None:
    """Return the bytes per element that a narrow implementation sends; None for an exact one."""
    _, _, name = implementation.partition(PREFIX)
    return WIRES[name].nbytes if name in WIRES else EARLIER_WIRES.get(name)
