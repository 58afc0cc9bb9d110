"""Faults of the kernels whose wire is narrower, seen on CPUs by the bound on what may be lost."""

from tools.mutants.trial import Mutant, Trial

_WIRES, _NARROW = "kernels/wires.cuh", "kernels/narrow.cu"
ALL = "narrow-bfloat16,narrow-e4m3,narrow-topk"
SCALED = ("e4m3",)
BFLOAT, TOPK = Trial("narrow-bfloat16"), Trial("narrow-topk")

_UP = "(exponent - TOP) << MANTISSA"
_EXPONENT = "return own > TOP ? own : TOP + 1;"
_SIDE = "one.side = sides()[group];"
_READ = "Wire::SIDED ? box.sides()[at] : Wire::Side()"
_NEAREST = "(bits + 0x7fff + (bits >> 16 & 1)) >> 16"
_TERMS = "      if (from != call.rank) read(inbox("
_TAKE = "        if constexpr (how.direct) read(box, at, result"
_SEND = "        if constexpr (how.direct) write(box, at, input"
_MEET = "    call.meet(round + 1);\n"


def of_each(name: str, *changes: tuple[str, str], file: str = _WIRES, names: tuple[str, ...] = SCALED) -> list[Mutant]:
    """The same fault for several wires, each of which must see it."""
    return [Mutant(f"{name}, {wire}", file, changes, Trial(f"narrow-{wire}")) for wire in names]


SCALES = (
    *of_each("a scale that is read twice as large", (_UP, _UP.replace("TOP)", "TOP + 1)"))),
    *of_each("a scale that is read half as large", (_UP, _UP.replace("TOP)", "TOP - 1)"))),
    *of_each("the scale of the group beside", (_READ, _READ.replace("[at]", "[at ^ 1]")), file=_NARROW),
    *of_each("one scale for all groups", (_READ, _READ.replace("[at]", "[0]")), file=_NARROW),
    *of_each(
        "a scale that is too coarse",
        (_EXPONENT, _EXPONENT.replace("TOP + 1;", "TOP + 1) + 1;").replace("n own", "n (own")),
    ),
)

FORMATS = (
    Mutant("a bfloat16 that is cut off", _WIRES, ((_NEAREST, "bits >> 16"),), BFLOAT),
    Mutant("a bfloat16 that is rounded up", _WIRES, ((_NEAREST, "(bits + 0xffff) >> 16"),), BFLOAT),
    Mutant(
        "one digit too few",
        _WIRES,
        (("const unsigned digits = float_to_bits(", "const unsigned digits = ~1U & float_to_bits("),),
        Trial("narrow-e4m3"),
    ),
    Mutant("a sign that is lost", _WIRES, ((" | code >> SIGN << 31);", ");"),), Trial("narrow-e4m3")),
    Mutant("the last of the largest in a wrong place", _WIRES, (("<< 8 * k;", "<< 8 * (k % 3);"),), TOPK),
    Mutant(
        "the four behind the largest",
        _WIRES,
        (("places = 0, before = ~0U;", "places = 0, before = largest(x) & ~(GROUP - 1);"),),
        TOPK,
    ),
)

EXCHANGES = (
    *(
        Mutant(
            "a group that is not taken" + f", {one}",
            _NARROW,
            ((_TAKE, "        if (at == 3) return;\n" + _TAKE),),
            Trial(one),
        )
        for one in ALL.split(",")
    ),
    *(
        Mutant(
            "a group that is not sent" + f", {one}",
            _NARROW,
            ((_SEND, "        if (at == 3) return;\n" + _SEND),),
            Trial(one),
        )
        for one in ALL.split(",")
    ),
    *(
        Mutant(
            "a rank whose part is not added" + f", {one}",
            _NARROW,
            ((_TERMS, "      if (from == 1 && call.rank != 1) continue;\n" + _TERMS),),
            Trial(one),
        )
        for one in ALL.split(",")
    ),
    Mutant("wires without their first meeting", _NARROW, (("  call.meet(0);\n", ""),), Trial("narrow-e4m3")),
    Mutant(
        "wires without their last meeting",
        _NARROW,
        ((_MEET, "    if (round + 1 < rounds) call.meet(round + 1);\n"),),
        Trial("narrow-e4m3"),
    ),
    Mutant(
        "boxes that are not taken in turn",
        _NARROW,
        (("(2 * kind + (round & 1))", "(2 * kind)"),),
        Trial("narrow-bfloat16", size="4M"),
    ),
    Mutant(
        "a number for all meetings of a long call",
        _NARROW,
        (("call.leave(rounds / 4 + 1);", "call.leave();"),),
        Trial("narrow-bfloat16", size="4M"),
    ),
    Mutant(
        "an owner that keeps what it added",
        _NARROW,
        (
            (
                "    read(kept, at, result().own(group));\n",
                "    for (unsigned i = 0; i < GROUP; i++) result().own(group)[i] = sum[i];\n",
            ),
        ),
        Trial("narrow-e4m3"),
    ),
)

MUTANTS = (*SCALES, *FORMATS, *EXCHANGES)
