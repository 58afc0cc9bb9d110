"""A sum of signed bytes is extended before it is divided, in every kernel that averages.

NVIDIA's compilers add the bytes of a pack in registers of 16 bits, whose upper half then holds anything, and leave out
the extension of every fourth byte before they divide by a power of two.  The PTX tells, without a GPU.
"""

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from collbench.platforms.gpu import launch
from tools.kernels.nvrtc import PIPELINED, PROGRAMS, compiled

AVERAGING = {  # kernels by file; of the others none may divide what it has loaded
    "direct.cu": {"one_shot", "two_shot", "parameter_server"},
    "one_shot_ll.cu": {"one_shot_ll"},
    "ring.cu": {"ring_allreduce", "ring_reducescatter"},
    "ring_ll.cu": {"ring_ll_allreduce"},
    "steps.cu": {"complete"},
}
OF_FOUR = [program for program in PROGRAMS if program[0] != "narrow.cu"]  # that knows floats only
OF_TWO_AND_EIGHT = [
    (file, (*more, *launch.defines(ranks, one_device=True)))
    for file, more in [*((file, ()) for file in AVERAGING), ("ring.cu", PIPELINED)]
    for ranks in (2, 8)
]
ENTRY = re.compile(r"\.entry (\w+)\(.*?^}", re.DOTALL | re.MULTILINE)
INSTRUCTION = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s+({[^}]*}|[^,;]*),?([^;]*);", re.MULTILINE)
REGISTER = re.compile(r"%(?:rs|rd|r)\d+")
EXTENDS = re.compile(r"(?:cvt\.[su]\d+|ld\..*)\.s8|shr\.s16 8|shr\.s32 24|bfe\.s32 8")
LOADS = re.compile(r"ld\.(?!param)")
DIVIDES = re.compile(r"div\.[su]\d+|shr\.[su]\d+ (\d+)")


def divided(kernel: str) -> Iterator[tuple[str, bool]]:
    """Each instruction that divides something loaded, or begins to, and whether what it divides was extended.

    A register holds nothing loaded, or only extended bytes and what was computed of them, or else is loose: a word of
    several bytes, or a sum of such words.  It is loose if any instruction may leave it so.  A shift to the right by
    whole bytes picks one of them; any other is part of a division by a power of two.
    """
    code = []
    for name, target, sources in INSTRUCTION.findall(kernel):
        number = re.search(r", (\d+)$", sources)
        code.append((f"{name} {number[1] if number else ''}", REGISTER.findall(target), REGISTER.findall(sources)))
    nothing, extended, loose = range(3)
    states: dict[str, int] = defaultdict(lambda: nothing)
    before = -1
    while before < sum(states.values()):
        before = sum(states.values())
        for form, targets, sources in code:
            state = max((states[source] for source in sources), default=nothing)
            if LOADS.match(form):
                state = loose
            if EXTENDS.match(form):
                state = min(state, extended)
            if not form.startswith("st."):
                states.update((target, max(state, states[target])) for target in targets)
    for form, _, sources in code:
        division = DIVIDES.match(form)
        if division and int(division[1] or 1) % 8 and states[sources[0]]:
            yield f"{form} of {sources[0]}", states[sources[0]] == extended


@pytest.mark.parametrize("programs", [OF_FOUR, pytest.param(OF_TWO_AND_EIGHT, marks=pytest.mark.full)])
@pytest.mark.timeout(600)
def test_no_kernel_divides_a_sum_of_signed_bytes_without_extending_its_sign(
    programs: list[tuple[str, tuple[str, ...]]],
) -> None:
    for file, more in programs:
        dividing = set()
        for entry in ENTRY.finditer(compiled(file, more, "int8", "avg").ptx):
            for text, extended in divided(entry[0]):
                dividing.add(entry[1])
                assert extended, (file, more, entry[1], text)
        assert dividing == AVERAGING.get(file, set()), (file, more)


def test_a_sum_whose_sign_is_not_extended_is_found() -> None:
    lanes = """
        ld.global.u32 %r1, [%rd1];
        mov.b32 {%rs1, %rs2}, %r1;
        shr.u16 %rs3, %rs1, 8;
        add.s16 %rs4, %rs1, %rs2;
        add.s16 %rs5, %rs3, %rs2;
        cvt.s16.s8 %rs6, %rs5;
        shr.u16 %rs7, %rs4, 13;
        shr.u16 %rs8, %rs6, 13;
    """
    assert [extended for _, extended in divided(lanes)] == [False, True]
    mended = lanes.replace("add.s16 %rs4, %rs1, %rs2;", "add.s16 %rs9, %rs1, %rs2; cvt.s16.s8 %rs4, %rs9;")
    assert [extended for _, extended in divided(mended.replace("; ", ";\n"))] == [True, True]
