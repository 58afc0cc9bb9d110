"""A ReFrame check: the node is right, and its bus bandwidths and latencies go into ReFrame's performance log.

Start: reframe -c deploy/reframe/collbench_check.py -r --performance-report
To change: -S CollbenchCheck.options='--op all --reference floors.toml', -S CollbenchCheck.executable=/path/collbench;
references of your own, although collbench has compared the times with what it expects already.
"""

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function, variable


@rfm.simple_test
class CollbenchCheck(rfm.RunOnlyRegressionTest):
    """A node checks itself: a task with all GPUs, as in `collbench check`."""

    descr = "every element of a collective is right, and it takes the time that is expected"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "collbench"
    num_tasks = 1
    exclusive_access = True
    time_limit = "10m"
    options = variable(str, value="")

    @run_before("run")
    def ask_for_json(self) -> None:
        self.executable_opts = ["check", "--json", "check.json", self.options]

    @property
    def verdict(self) -> dict:
        return json.loads(Path(self.stagedir, "check.json").read_text(encoding="utf-8"))

    @sanity_function
    def is_right(self) -> object:
        return sn.assert_in(self.verdict["word"], ("OK", "FAST"), self.verdict["line"])

    @run_before("performance")
    def take_figures(self) -> None:
        for curve in self.verdict["curves"]:
            for size in curve["sizes"]:
                name = f"{size['collective']}_{size['nbytes']}_{size['implementation']}".replace("-", "_")
                figures = (("time", size["seconds"] * 1e6, "us"), ("busbw", size["busbw"] / 1e9, "GB/s"))
                for figure, value, unit in figures:
                    self.perf_variables[f"{name}_{figure}"] = sn.make_performance_function(sn.defer(value), unit)
