"""Files that users give and no format reads: of each kind a sign in its text, what it is, and what to do instead."""

from collbench.formats.nccl_tests_log import START

OTHERS = (
    (r'\A\s*\{"kind": "header"', "a run file of collbench already", "give it to the commands as it is"),
    (r"\A(?:PK\x03\x04|[^\0]{1,100}\0[\s\S]{150,260}ustar)", "an archive", "unpack it and give the folder"),
    (
        r"^nvbandwidth version|^(?:running|sum) \w{1,80}_(?:memcpy|latency)_|(?:memcpy|latency) (?:CE|SM) [CG]PU\(row",
        "text of nvbandwidth",
        "run `nvbandwidth -j`",
    ),
    (
        r"^(?:# (?:HELP|TYPE) )?nccl_\w{1,80}(?:\{| )|\A\s{0,99}\[[\s\S]{0,400}\"n_ranks\"",
        "Prometheus text of NCCL Inspector, or a list of its objects",
        "give its JSON, an object a line (`jq -c .`, of a list `jq -c .[]`)",
    ),
    (
        START.pattern,
        "rows of nccl-tests without the line that names their columns",
        "copy the header of the table (# size count type ... time algbw busbw), too",
    ),
    (
        r"^\W{0,9}size\s.{0,80}(?:latency|bandwidth)",
        "a table of OSU without its title",
        "copy its line `# OSU ...`, too",
    ),
    (
        r" NCCL (?:INFO|WARN|TRACE|VERSION) ",
        "NCCL's own log without a table",
        "give what the benchmark printed, for example of `all_reduce_perf`",
    ),
    (r"\A\s{0,99}<(?:!doctype\s|html)", "an HTML page", "save the log itself, as raw text"),
)
