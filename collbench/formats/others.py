"""Files that users give and no format reads: a record of each kind, how it is told, and what to do instead."""

import re
from dataclasses import dataclass

from collbench.formats.nccl_tests_log import START
from collbench.formats.source import Source


@dataclass(frozen=True)
class Other:
    """A kind of file that is not read."""

    sign: str  # in its text, whatever the capitals
    what: str
    instead: str

    def recognises(self, source: Source) -> bool:
        """Whether a file is of this kind."""
        return re.search(self.sign, source.text, re.IGNORECASE | re.MULTILINE) is not None


OTHERS = (
    Other(r'\A\s*\{"kind": "header"', "a run file of collbench already", "give it to the commands as it is"),
    Other(r"\A(?:PK\x03\x04|[^\0]{1,100}\0[\s\S]{150,260}ustar)", "an archive", "unpack it and give the folder"),
    Other(r"^nvbandwidth version|^running \w{1,80}_memcpy_", "text of nvbandwidth", "run `nvbandwidth -j`"),
    Other(
        r"^(?:# (?:HELP|TYPE) )?nccl_\w{1,80}(?:\{| )",
        "Prometheus text of NCCL Inspector",
        "give its JSON, an object a line (`jq -c .`)",
    ),
    Other(
        START.pattern,
        "rows of nccl-tests without the line that names their columns",
        "copy the header of the table (# size count type ... time algbw busbw), too",
    ),
    Other(
        r"^\W{0,9}size\s.{0,80}(?:latency|bandwidth)",
        "a table of OSU without its title",
        "copy its line `# OSU ...`, too",
    ),
    Other(
        r" NCCL (?:INFO|WARN|TRACE|VERSION) ",
        "NCCL's own log without a table",
        "give what the benchmark printed, for example of `all_reduce_perf`",
    ),
    Other(r"\A\s{0,99}<(?:!doctype\s|html)", "an HTML page", "save the log itself, as raw text"),
)
