"""`import cupy` on a machine that tests make up: for processes started with the folder above this one on PYTHONPATH.

MADE_UP_MACHINE holds the machine's fields in JSON; those under "process 1" are for that process only.  With
`simulation`, fields of a fake_simulate.Simulation, NCCL has estimates.  `patience` is for how many seconds NCCL's start
and first operation are waited for.
"""

import json
import os
import sys

from tests.platforms.gpu.fake_cuda import Machine
from tests.platforms.gpu.fake_simulate import Simulation

_process = int(os.environ.get("PMI_RANK", "0"))
_fields = json.loads(os.environ["MADE_UP_MACHINE"])
_own = {name: _fields.pop(name) for name in [*_fields] if name.startswith("process ")}
_fields |= _own.get(f"process {_process}", {})
if "simulation" in _fields:
    _fields["simulation"] = Simulation(**_fields["simulation"])
if patience := _fields.pop("patience", 0):
    from collbench.platforms.gpu import platform

    platform.STARTUP = patience
_made = Machine(process=_process, **_fields).cupy()

globals().update(vars(_made))
sys.modules |= {"cupy.cuda": _made.cuda, "cupy.cuda.nccl": _made.cuda.nccl}
