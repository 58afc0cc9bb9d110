"""The functions, structures and log lines of NCCL's releases that collbench uses, from NVIDIA's wheels.

    python -m tools.gpu.nccl_interface FOLDER... > tests/platforms/gpu/nccl_interface.toml

Each folder holds an unpacked wheel (pip download nvidia-nccl-cu13==2.32.3).  The layout of structures comes from a
program that is compiled with the header.  The library is loaded, which takes no GPU.
"""

import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from collbench.platforms.compiler import compiler
from collbench.platforms.gpu.nccl import in_words
from collbench.platforms.gpu.nccl.functions import FUNCTIONS, Config, SimInfo

KINDS = {"size_t": "size", "int": "int", "ncclDataType_t": "int", "ncclRedOp_t": "int", "ncclUniqueId": "id"}
NUMBERS = (
    "NCCL_CONFIG_UNDEF_INT",
    "NCCL_WIN_COLL_SYMMETRIC",
    "NCCL_WIN_REQUIRED_ALIGNMENT",
    "NCCL_CTA_POLICY_EFFICIENCY",
    "NCCL_CTA_POLICY_ZERO",
    "NCCL_UNIQUE_ID_BYTES",
)
FORMS = re.compile(rb"[ -~]*Bytes -> (?:Algo|Kernel|cudaMemcpy|RMA|Rail)[ -~]*")


def described(wheel: Path) -> str:
    (file,), (library,) = wheel.rglob("nccl.h"), wheel.rglob("libnccl.so.2")
    text, loaded = file.read_text(), ctypes.CDLL(str(library))
    number = ctypes.c_int()
    assert loaded.ncclGetVersion(ctypes.byref(number)) == 0
    lines = [f'["{in_words(number.value)}"]', f"number = {number.value}"]
    for name in FUNCTIONS:
        declared = re.search(rf"ncclResult_t\s+{name}\s*\(([^;]*)\)\s*;", text)
        assert bool(declared) == hasattr(loaded, name), f"{name} is in one of header and library"
        if declared:
            taken = " ".join(_kind(words) for words in declared[1].split(","))
            lines.append(f'{name} = "{taken}"')
    lines.append(f"resets_its_log = {str(hasattr(loaded, 'ncclResetDebugInit')).lower()}")
    enumerated = re.search(r"enum \{ (ncclSuccess.*?)ncclNumResults", text, re.DOTALL)
    assert enumerated
    lines.append(f"codes = {re.findall(r'(nccl[A-Z][A-Za-z]+) *=', enumerated[1])}")
    lines += [f"{name} = {value}" for name, value in _numbers(file, text)]
    lines.append(f"log = {sorted({form.decode() for form in FORMS.findall(library.read_bytes())})}")
    return "\n".join(lines)


def _kind(words: str) -> str:
    """Return the kind of an argument: a pointer or handle, a size, a number, an id."""
    typed = [word for word in re.findall(r"\w+", words) if word in KINDS]
    return "pointer" if "*" in words or not typed else KINDS[typed[0]]


def _numbers(file: Path, text: str) -> list[tuple[str, int]]:
    """Return the numbers of the header and the offsets of its structures' fields."""
    wanted = {name: name for name in NUMBERS if name in text}
    for name, structure, kind in (("CONFIG", "ncclConfig_t", Config), ("SIM_INFO", "ncclSimInfo_t", SimInfo)):
        made = f"{structure} made = NCCL_{name}_INITIALIZER"
        wanted[f'"{structure} magic"'] = f"[]{{ {made}; return made.magic; }}()"
        for field in kind._fields_:
            wanted[f'"{structure}.{field[0]}"'] = f"offsetof({structure}, {field[0]})"
    prints = "".join(f'printf("%lld\\n", (long long)({value}));' for value in wanted.values())
    program = f"#include <cstddef>\n#include <cstdio>\n#include <nccl.h>\nint main() {{ {prints} }}\n"
    with tempfile.TemporaryDirectory() as folder:
        # nccl.h needs the names of two types of CUDA's headers.
        Path(folder, "cuda_runtime.h").write_text("typedef void *cudaStream_t, *cudaEvent_t;")
        Path(folder, "cuda_fp16.h").touch()
        source = Path(folder, "say.cpp")
        source.write_text(program)
        subprocess.run([*compiler(), "-I", file.parent, "-I", folder, "-o", Path(folder, "say"), source], check=True)
        said = subprocess.run([Path(folder, "say")], check=True, capture_output=True, text=True).stdout
    return list(zip(wanted, map(int, said.split()), strict=True))


if __name__ == "__main__":
    sys.stdout.write("# Made by tools/gpu/nccl_interface.py from the wheels of NVIDIA's NCCL.\n\n")
    sys.stdout.write("\n\n".join(described(Path(folder)) for folder in sys.argv[1:]) + "\n")
