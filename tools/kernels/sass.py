"""The memory instructions of a compiled kernel, read by nvdisasm of the wheel nvidia-cuda-nvdisasm.

It reads sm_75 and later; no wheel has one that reads sm_70.
"""

import fcntl
import hashlib
import os
import pickle
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from pathlib import Path

from collbench.host.cache import cache_folder
from tools import in_nvidia_wheels
from tools.kernels.nvrtc import RANKS_MEET, Compiled, compiled

_FORM = Path(__file__).read_text()  # part of the cache key: another text of this file may list in another form
Listing = dict[str, tuple[tuple[str, str], ...]]
READ = (80, 90, 100)  # architectures of the tests
INSTRUCTION = 16  # bytes of one
_LINE = re.compile(r"^\s*/\*(?P<at>[0-9a-f]+)\*/\s+(?:@!?U?P\d+\s+)?(?P<word>[A-Z][\w.]*)\s*(?P<operands>[^;]*);")
_MEMORY = re.compile(r"(LD[GL]?|ST[GL]?|ATOMG?|RED|MEMBAR|CCTL|BAR)\b")
_ENDS = re.compile(r"(BRA|BRX|EXIT|RET|CALL|BAR|WARPSYNC|BSYNC)\b")  # ends of a run of consecutive instructions
_BRANCHES = re.compile(r"(BRA|BRX|BSSY|CALL|RET|JMP|WARPSYNC\.)")  # may name a place in the code
_TARGET = re.compile(r"\b0x[0-9a-f]+$")
_REGISTER = re.compile(r"\bR(\d+)\b")
BARRIER = "BAR.SYNC"


@cache
def disassembler() -> Path:
    found = in_nvidia_wheels("*/bin/nvdisasm")
    assert found, "no nvdisasm: pip install 'nvidia-cuda-nvdisasm>=13.2,<14'"
    return found[0]


@cache
def listing(compiled: Compiled) -> Listing:
    """Return every instruction with its operands for each kernel, in code order; a label is an empty instruction."""
    together([compiled])
    found: Listing = pickle.loads(_kept(compiled.binary).read_bytes())
    return found


def together(programs: Iterable[Compiled]) -> list[Compiled]:
    """Keep the listings of programs, by one run of the disassembler for each architecture: its start is slow."""
    every = list(programs)
    cache_folder().mkdir(parents=True, exist_ok=True)
    for arch, several in groupby(sorted(every, key=_arch), key=_arch):
        with (cache_folder() / f"sass-{arch}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # parallel tests need the same listings
            unread = [program for program in several if not _kept(program.binary).exists()]
            for program, found in zip(unread, _disassemble(unread), strict=True):
                scratch = _kept(program.binary).with_suffix(f".{os.getpid()}")
                scratch.write_bytes(pickle.dumps(found))
                scratch.replace(_kept(program.binary))
    return every


def of_ranks(arch: int) -> list[tuple[str, tuple[str, ...], Compiled]]:
    """Return every program with ranks that meet, disassembled together."""
    programs = together(compiled(file, more, arch=arch) for file, more in RANKS_MEET)
    return [(*names, program) for names, program in zip(RANKS_MEET, programs, strict=True)]


def _arch(compiled: Compiled) -> int:
    return compiled.arch


@cache
def _kept(binary: bytes) -> Path:
    tool = disassembler().stat()
    words = f"{disassembler()} {tool.st_size} {tool.st_mtime_ns} {_FORM}"
    return cache_folder() / f"sass-{hashlib.sha256(binary + words.encode()).hexdigest()[:16]}"


def _disassemble(programs: list[Compiled]) -> list[Listing]:
    """Return the listings of several programs; their code is concatenated as raw instructions for the disassembler."""
    if not programs:
        return []
    kernels = [_kernels(program.binary) for program in programs]
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(b"".join(code for kernel in kernels for code in kernel.values()))
        file.flush()
        command = [disassembler(), "-b", f"SM{programs[0].arch}", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [code for line in done.stdout.splitlines() if (code := _LINE.match(line))]
    assert len(lines) == sum(len(code) for kernel in kernels for code in kernel.values()) // INSTRUCTION
    first, found = 0, []
    for kernel in kernels:
        listed = {}
        for name, code in kernel.items():
            count = len(code) // INSTRUCTION
            listed[name] = _labelled(lines[first : first + count], first * INSTRUCTION)
            first += count
        found.append(listed)
    return found


def _labelled(lines: list[re.Match[str]], start: int) -> tuple[tuple[str, str], ...]:
    """Return the code with a label at every target of a branch, relative to the start of the kernel."""
    operands = [
        _TARGET.sub(lambda target: f".L_{int(target[0], 16) - start:x}", line["operands"].strip())
        if _BRANCHES.match(line["word"])
        else line["operands"].strip()
        for line in lines
    ]
    targets = {label for operand in operands for label in re.findall(r"\.L_\w+", operand)}
    code = []
    for line, operand in zip(lines, operands, strict=True):
        label = f".L_{int(line['at'], 16) - start:x}"
        code += [("", label)] if label in targets else []
        code.append((line["word"], operand))
    return tuple(code)


def _kernels(binary: bytes) -> dict[str, bytes]:
    """Return the code of each kernel of an ELF file, from its sections .text.NAME."""
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    size, count, names = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", binary, table + i * size) for i in range(count)]
    found = {}
    for name, _, _, _, offset, length in headers:
        start = headers[names][4] + name
        text = binary[start : binary.index(b"\0", start)].decode()
        if text.startswith(".text."):
            found[text.removeprefix(".text.")] = binary[offset : offset + length]
    return found


def memory_instructions(compiled: Compiled) -> dict[str, tuple[str, ...]]:
    """Return the memory instructions of each kernel in the order of the code, with the barriers of a block."""
    found = {}
    for name, code in listing(compiled).items():
        words = (word for word, _ in code if _MEMORY.match(word))
        found[name] = tuple(BARRIER if word.startswith(BARRIER) else word for word in words)
    return found


def loads_in_flight(code: tuple[tuple[str, str], ...], word: str) -> int:
    """Return the largest number of loads with this name that a thread has in flight before it uses a loaded value.

    Instructions are issued in order, so the use of a loaded value waits, and so do all later instructions.
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
        if name.replace(".EF", "") == word:  # with or without a cache hint
            first = int(_REGISTER.findall(operands)[0])
            on_the_way.append({first + lane for lane in range(4)})
            most = max(most, len(on_the_way))
    return most
