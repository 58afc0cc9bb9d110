"""`import cupy` on a made-up machine (described.py): for processes started with the folder above on PYTHONPATH."""

import sys
from itertools import permutations

from collbench.host.launcher import launched
from tools.stand_in.cuda import Machine
from tools.stand_in.described import PROCESS, fields
from tools.stand_in.simulate import Simulation

_fields = fields()
_fields.pop("nvml", None)
_switch = _fields.pop("switch", False)
if "simulation" in _fields:
    _fields["simulation"] = Simulation(**_fields["simulation"])
_buses = [_fields.get("buses", {}).get(device, device) for device in range(_fields.get("devices", 1))]
_fields["without_peers"] = {(a, b) for a, b in permutations(range(len(_buses)), 2) if _buses[a] == _buses[b]}
_machine = Machine(process=PROCESS, **_fields)
if _switch and not launched():  # one process alone has memory for it
    from collbench.platforms.gpu import cuda as _gpu_cuda
    from tools.stand_in.driver import Library

    _machine.switch = Library(_machine)
    _gpu_cuda.load_driver = lambda: _gpu_cuda.Driver(_machine.switch)
_made = _machine.cupy()

globals().update(vars(_made))
sys.modules |= {"cupy.cuda": _made.cuda, "cupy.cuda.nccl": _made.cuda.nccl}
