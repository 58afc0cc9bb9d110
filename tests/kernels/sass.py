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
_MEMORY = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+\s+)?((?:LD[GL]?|ST[GL]?|ATOMG?|RED|MEMBAR|CCTL|BAR)\b[\w.]*)")
BARRIER = "BAR.SYNC"


@cache
def disassembler() -> Path:
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    found = [path for folder in folders for path in sorted(folder.glob("*/bin/nvdisasm"))]
    assert found, "no nvdisasm: pip install 'nvidia-cuda-nvdisasm>=13.2,<14'"
    return found[0]


@cache
def memory_instructions(binary: bytes) -> dict[str, tuple[str, ...]]:
    """Of each kernel in the order of its code, with the barriers of a block."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        done = subprocess.run([disassembler(), "-c", file.name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if start := _KERNEL.match(line):
            kernel = found.setdefault(start[1], [])
        elif word := _MEMORY.match(line):
            kernel.append(BARRIER if word[1].startswith(BARRIER) else word[1])
    return {name: tuple(words) for name, words in found.items()}
