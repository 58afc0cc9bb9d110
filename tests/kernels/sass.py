"""The memory instructions of a compiled kernel, read by nvdisasm of the wheel nvidia-cuda-nvdisasm.

It reads sm_75 and later; no wheel has one that reads sm_70.
"""

import importlib.util
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_KERNEL = re.compile(r"^\.text\.(\w+):$")
_LINE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+\s+)?(?P<word>[A-Z][\w.]*)\s*(?P<operands>[^;]*);")
_MEMORY = re.compile(r"(LD[GL]?|ST[GL]?|ATOMG?|RED|MEMBAR|CCTL|BAR)\b")
_ENDS = re.compile(r"(BRA|BRX|EXIT|RET|CALL|BAR|WARPSYNC|BSYNC)\b")  # of a run of instructions one after the other
_REGISTER = re.compile(r"\bR(\d+)\b")
BARRIER = "BAR.SYNC"


@cache
def disassembler() -> Path:
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    found = [path for folder in folders for path in sorted(folder.glob("*/bin/nvdisasm"))]
    assert found, "no nvdisasm: pip install 'nvidia-cuda-nvdisasm>=13.2,<14'"
    return found[0]


@cache
def listing(binary: bytes) -> dict[str, tuple[tuple[str, str], ...]]:
    """Of each kernel every instruction with its operands, in the order of the code; a label is an empty instruction."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        done = subprocess.run([disassembler(), "-c", file.name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[tuple[str, str]]] = {}
    for line in done.stdout.splitlines():
        if start := _KERNEL.match(line):
            kernel = found.setdefault(start[1], [])
        elif line.startswith(".L_"):
            kernel.append(("", line))
        elif code := _LINE.match(line):
            kernel.append((code["word"], code["operands"]))
    return {name: tuple(code) for name, code in found.items()}


def memory_instructions(binary: bytes) -> dict[str, tuple[str, ...]]:
    """Of each kernel in the order of its code, with the barriers of a block."""
    return {
        name: tuple(BARRIER if word.startswith(BARRIER) else word for word, _ in code if _MEMORY.match(word))
        for name, code in listing(binary).items()
    }


def loads_in_flight(code: tuple[tuple[str, str], ...], word: str) -> int:
    """The most loads of that name that a thread has on the way before it uses what one of them brings.

    Instructions are issued in order, so whoever uses what a load brings waits for it, and so does all that follows.
    """
    most, on_the_way = 0, []
    for name, operands in code:
        used = {int(number) for number in _REGISTER.findall(operands)}
        if name.startswith("ST") and ".128" in name:
            value = int(_REGISTER.findall(operands)[-1])
            used |= {value + lane for lane in range(4)}
        if not name or _ENDS.match(name):
            on_the_way = []
        on_the_way = [] if any(used & brought for brought in on_the_way) else on_the_way
        if name == word:
            first = int(_REGISTER.findall(operands)[0])
            on_the_way.append({first + lane for lane in range(4)})
            most = max(most, len(on_the_way))
    return most
