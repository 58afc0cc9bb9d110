"""The machine of MADE_UP_MACHINE, for processes that find the modules of `made_up` in the place of real ones.

It holds fields of a cuda.Machine in JSON; those under "process 1" are for that process only.  Beside them may be

* `switch`: the GPUs hang on an NVSwitch, which adds; else they are joined by PCIe;
* `nvml`: the error that NVML starts with, as a number, or "missing" where nvidia-ml-py is not installed;
* `simulation`: fields of a simulate.Simulation, NCCL's estimates.
"""

import json
import os
from typing import Any

PROCESS = int(os.environ.get("PMI_RANK", "0"))


def fields() -> dict[str, Any]:
    """All of them, as this process has them; numbers of devices are numbers again."""
    found: dict[str, Any] = json.loads(os.environ["MADE_UP_MACHINE"])
    own = {name: found.pop(name) for name in [*found] if name.startswith("process ")}
    found |= own.get(f"process {PROCESS}", {})
    for name in {"buses", "slower"} & found.keys():
        found[name] = {int(number): value for number, value in found[name].items()}
    return found
