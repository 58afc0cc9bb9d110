"""`import pynvml` on the same machine as the `cupy` beside it: its GPUs as NVML would show them (described.py).

Devices on one bus are MIG slices of the GPU there.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from uuid import UUID

from tools.stand_in.described import fields

_fields = fields()
if _fields.get("nvml") == "missing":
    raise ModuleNotFoundError("No module named 'pynvml'", name="pynvml")

_own = Path(__file__).parent
_spec = PathFinder.find_spec("pynvml", [place for place in sys.path if Path(place).resolve() != _own])
assert _spec
assert _spec.loader
sys.modules["pynvml"] = module_from_spec(_spec)  # the real one, for its constants, structures and errors
_spec.loader.exec_module(sys.modules["pynvml"])

from tools.stand_in.nvml import SWITCH, FakeGpu, FakeNvml, Slice, bus  # noqa: E402 - it imports the real one


def _gpu(number: int, devices: list[int]) -> FakeGpu:
    slices = [Slice("Test GPU MIG", f"MIG-{UUID(bytes=bytes([device + 1] * 16))}", 2**30) for device in devices]
    sliced, switched = len(slices) > 1, bool(_fields.get("switch"))
    return FakeGpu(
        "Test GPU",
        bus(number),
        links=((SWITCH, bus(0xC0)),) * 18 * switched,
        mig=int(sliced),
        fabric=(3, 0) if switched else None,
        slices=tuple(slices) if sliced else (),
    )


_buses: dict[int, list[int]] = {}
for _device in range(_fields.get("devices", 1)):
    _buses.setdefault(_fields.get("buses", {}).get(_device, _device), []).append(_device)
_made = FakeNvml([_gpu(*one) for one in _buses.items()], p2p={0: 0, 1: 0, 2: 0}, init_error=_fields.get("nvml", 0))
sys.modules["pynvml"] = _made  # type: ignore[assignment]
