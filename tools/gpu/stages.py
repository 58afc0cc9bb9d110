"""The stages of a GPU campaign, in order of value.  A new stage is a record here; campaign.py runs it.

Times in the comments are those of an H100 that 4 ranks share.
"""

from dataclasses import dataclass

SIZES = ("-b", "8", "-e", "256M", "-f", "4")
STEP = ("--ranks", "4", "--compute", "5ms", "--gradients", "64M")
TOOLS = ("memcheck", "racecheck", "synccheck")  # of compute-sanitizer


@dataclass(frozen=True)
class Stage:
    """A command of collbench, or a program of this folder; `{folder}` stands for a folder of the stage's own."""

    name: str
    shows: str
    command: tuple[str, ...]  # begins with `collbench`, or with the name of a program
    limit: int = 240  # seconds after which it is ended
    gpus: int = 1  # without which it is not possible
    package: str = ""  # of Python, likewise
    tests: bool = False  # whether it says that something is right, and not how fast it is


def _sweep(name: str, shows: str, *words: str, gpus: int = 1) -> Stage:
    return Stage(name, shows, ("collbench", "sweep", "--on", "gpu", *words, "--out", "{folder}/run"), 150, gpus)


def _right(name: str, shows: str, *command: str, limit: int = 240, gpus: int = 1, package: str = "") -> Stage:
    return Stage(name, shows, command, limit, gpus, package, tests=True)


def _rungs(ranks: int, how: str) -> Stage:
    words = ("run", "--impl", "ladder", "--ranks", str(ranks), "--how", how)
    return _right(f"rungs-{ranks}-{how}", f"every rung is exact with {ranks} ranks, by {how}", *words)


def _nccl(ranks: int) -> Stage:
    words = ("run", "--impl", "nccl", "--ranks", str(ranks))
    return _right(f"nccl-{ranks}", f"NCCL is right with {ranks} ranks on one GPU (needs 2.30)", *words, limit=120)


def _tool(tool: str) -> Stage:
    return _right(tool, f"every rung under compute-sanitizer's {tool}", "sanitize", "--tool", tool)


def _step(command: str, shows: str, *words: str, name: str = "") -> Stage:
    words = ("collbench", "step", command, "--on", "gpu", *words, "--out", "{folder}/run")
    return Stage(f"steps-{name or command}", shows, words, 75)


def _processes(ranks: int, name: str = "mpi", impl: str = "all") -> Stage:
    start = ("collbench", "launch", "--go", "--launcher", "mpirun", "--ranks-per-node", str(ranks), "--")
    words = (*start, "sweep", "--on", "gpu", "--impl", impl, *_FEW, "--out", "{folder}/run")
    return _right(
        f"{name}-{ranks}-processes",
        f"{ranks} processes on one GPU, started by MPI, are right",
        *words,
        package="mpi4py",
    )


_FEW = ("--op", "allreduce,allgather", "-b", "240", "-e", "16K", "-f", "60", "-n", "2", "--no-plot")
_ALL = ("--op", "allreduce,broadcast,allgather", "--impl", "all", *SIZES)
_PATHS = ("--op", "allreduce,allgather,alltoall", "--impl", "library,paths", "-b", "8", "-e", "16M", "-f", "32")
_INIT = ("collbench", "startup", "--on", "gpu", "--ranks", "1,2,4,8", "--out", "{folder}/run")
_SCAN = ("collbench", "scan", "--on", "gpu", "--ranks", "4", "--out", "{folder}/run")
_EVERY_PAIR = ("collbench", "scan", "--pairs", "--on", "gpu", "--ranks", "4", "--out", "{folder}/run")
_BITS = ("collbench", "verify", "--bits", "--ranks", "2,4", "--impl", "library,paths,ladder", "--out", "{folder}/run")
_PAIRS = ("--op", "pingpong,bandwidth,bidirectional,multipair", "--impl", "nccl", *SIZES)
_CHECK = ("collbench", "check", "--budget", "40s")
_EVERY = ("-d", "all", "--redop", "all", "--op", "allreduce", "--impl", "all,narrow")
_VERIFY = ("collbench", "verify", "--on", "gpu", "--ranks", "4", *_EVERY)
_RUNGS = ("--impl", "ladder", "-b", "64K", "-e", "16M", "-f", "256")
_EXPLAIN = ("collbench", "explain", "--on", "gpu", "--ranks", "4", *_RUNGS, "--out", "{folder}/run")
_OVERLAP = ("--impl", "auto,two-shot,ring-events,ring-host,nccl", "--buckets", "4M,16M,64M")
_SCALE = ("--ranks", "1..4", *STEP[2:])

STAGES = (
    _sweep("newcomer", "a user's first sweep, with all defaults", "--op", "allreduce"),  # 47 s for 138 rows
    *(_sweep(f"sweep-{ranks}", f"times with {ranks} ranks", "--ranks", str(ranks), *_ALL) for ranks in (4, 2, 8)),
    *(_sweep(f"paths-{n}", "NCCL's fast paths or why not, and what ran", "--ranks", str(n), *_PATHS) for n in (2, 4)),
    Stage("init", "what communicators of 1 to 8 ranks take to start", _INIT, 120),
    Stage("bits", "whether sums have the same bits, launched and in graphs, and how far off they are", _BITS, 150),
    Stage("scan", "that none of four equal ranks is accused", _SCAN, 120),
    Stage("pairs", "every pair of four ranks, by NCCL, copies and kernels", _EVERY_PAIR, 120),
    Stage("kernels", "every kernel compiles for this GPU; fills the cache", ("compile_all",), 120, tests=True),  # 54 s
    _right("verify", "`collbench verify` of all types and reductions has nothing to complain of", *_VERIFY),
    Stage("targets", "the speed targets, as shares of their bounds", ("bench",), 90),
    Stage("explain", "where the time of every rung goes", _EXPLAIN, 75),  # 14 s
    _step("overlap", "what streams hide of a step's communication", *STEP, *_OVERLAP),
    _step("scale", "how a step scales", *_SCALE, "--impl", "auto,nccl"),
    _step("scale", "which rank is late", "--ranks", "4", "--impl", "auto,two-shot,nccl", name="stragglers"),
    Stage("check", "`collbench check`, which becomes a baseline", _CHECK, 110),
    Stage("check-again", "`collbench check`, compared with that", _CHECK, 110),
    Stage("topology", "`collbench topo`: what joins the GPUs", ("collbench", "topo", "gpu"), 60),
    *(_rungs(ranks, how) for ranks in (4, 2, 8) for how in ("launches", "graphs")),
    _right("rungs-every-gpu", "every rung is exact with a rank on every GPU", "run", "--impl", "ladder", gpus=2),
    *(_nccl(ranks) for ranks in (2, 4, 8)),
    _sweep("sweep-every-gpu", "times with a rank on every GPU", *_ALL, gpus=2),
    *map(_tool, TOOLS),
    *map(_processes, (2, 4)),
    _processes(2, "paths", "library,paths"),
    _right("rungs-narrow", "rungs with narrow wires keep their bounds", "run", "--impl", "narrow", "--ranks", "4"),
    _sweep("sweep-pairs", "messages between pairs of ranks (needs NCCL 2.30)", "--ranks", "2", *_PAIRS),
)
