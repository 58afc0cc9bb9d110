"""The stages of a GPU campaign, in order of value.  A new stage is a record here; campaign.py runs it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from collbench.errors import unknown

CACHE = "CUPY_CACHE_DIR"  # the variable that names the folder of compiled kernels, which stages share
MOST = 240  # seconds that a stage may take
TOOLS = ("memcheck", "racecheck", "synccheck")  # of compute-sanitizer


@dataclass(frozen=True)
class Stage:
    """A program of this folder with its arguments, `{folder}` standing for one of its own; its exit status: said.py."""

    name: str
    shows: str
    command: tuple[str, ...]
    limit: int = MOST  # seconds after which it is ended
    part: str = "tests"  # a name for several stages
    gpus: int = 1  # without which it is not possible


def _rungs(ranks: int, how: str) -> Stage:
    shows = f"every rung is exact with {ranks} ranks, by {how}"
    return Stage(f"rungs-{ranks}-{how}", shows, ("run", "--impl", "ladder", "--ranks", str(ranks), "--how", how))


def _processes(ranks: int, *more: str) -> Stage:
    words = [part.removeprefix("--") for part in more]
    shows = f"{ranks} processes on one GPU are right{''.join(f', through {word.upper()}' for word in words)}"
    program = ("processes", "--out", "{folder}/run", "--ranks", str(ranks), *more)
    return Stage("-".join(["processes", str(ranks), *words]), shows, program)


def _nccl(ranks: int) -> Stage:
    shows = f"NCCL is right with {ranks} ranks on one GPU (needs 2.30)"
    return Stage(f"nccl-{ranks}", shows, ("run", "--impl", "nccl", "--ranks", str(ranks)), 120)


def _sweep(ranks: int) -> Stage:
    shows = f"times of all implementations with {ranks} ranks, with plots"
    return Stage(f"sweep-{ranks}", shows, ("measure", "--ranks", str(ranks), "--out", "{folder}/run"), 120, "sweeps")


def _steps(command: str, shows: str) -> Iterator[Stage]:
    """On ranks that share the first GPU, and with a rank on every GPU."""
    program = ("stepped", command, "--out", "{folder}/run")
    yield Stage(f"steps-{command}", f"{shows}, on ranks that share a GPU", (*program, "--ranks", "4"), 75, "sweeps")
    everywhere, words = f"{shows}, with a rank on every GPU", (*program, "--ranks", "0")
    yield Stage(f"steps-{command}-every-gpu", everywhere, words, part="sweeps", gpus=2)


_KINDS = ("run", "--impl", "ladder", "--ranks", "2", "--how", "launches", "--check", "every_type_and_reduction")

# An H100 took 47 s for the 138 rows of an all-reduce on 4 ranks, 14 s to explain all, 54 s to compile all.
STAGES = (
    Stage(
        "newcomer",
        "`collbench sweep --op allreduce`, and nothing else, has a right row for all",
        ("newcomer", "sweep", "--out", "{folder}/run"),
        120,
        "sweeps",
    ),
    *(_sweep(ranks) for ranks in (4, 2, 8)),
    Stage(
        "launches-per-graph",
        "the time of an operation by how many are in a graph",
        ("launches_per_graph",),
        150,
        "bench",
    ),
    Stage("kernels", "every kernel compiles for this GPU; fills the cache", ("compile_all",), 120),
    Stage("kinds", "every type with every reduction is exact, rung by rung", _KINDS, 120),
    Stage("targets", "the speed targets, as shares of their bounds", ("bench",), 90, "bench"),
    Stage("explain", "where the time of every rung goes", ("explained", "--out", "{folder}/run"), 75),
    *_steps("overlap", "what streams hide of a training step's communicating"),
    *_steps("scale", "how a training step scales"),
    *_steps("stragglers", "who is late"),
    Stage(
        "check",
        "`collbench check` has a baseline from the second time on",
        ("newcomer", "check", "--out", "{folder}/state"),
        110,
        "sweeps",
    ),
    Stage(
        "verify",
        "`collbench verify` of all types and reductions has nothing to complain of",
        ("verified", "--ranks", "4"),
        120,
    ),
    Stage("nccl-tests", "`nccl` and nccl-tests time the same alike", ("nccl_tests", "--out", "{folder}"), 120, "bench"),
    Stage("facts", "what this GPU is, and how fast it copies", ("facts",), 120),  # CuPy from a cold disk
    *(_rungs(ranks, how) for ranks in (4, 2, 8) for how in ("launches", "graphs")),
    Stage("rungs-every-gpu", "every rung is exact with a rank on every GPU", ("run", "--impl", "ladder"), gpus=2),
    *(_nccl(ranks) for ranks in (2, 4, 8)),
    Stage("nccl-every-gpu", "NCCL is right with a rank on every GPU", ("run", "--impl", "nccl"), 120, gpus=2),
    Stage(
        "sweep-every-gpu",
        "times of all implementations with a rank on every GPU",
        ("measure", "--ranks", "0", "--out", "{folder}/run"),
        part="sweeps",
        gpus=2,
    ),
    *(Stage(tool, f"every rung under compute-sanitizer's {tool}", ("sanitize", "--tool", tool)) for tool in TOOLS),
    _processes(2),
    _processes(4),
    _processes(2, "--mps"),
    Stage("processes-every-gpu", "a process on every GPU is right", ("processes", "--out", "{folder}/run"), gpus=2),
    Stage("rungs-narrow", "rungs with narrow wires keep their bounds", ("run", "--impl", "narrow", "--ranks", "4")),
    Stage(
        "sweep-pairs",
        "messages between pairs of ranks, as OSU sends them (needs NCCL 2.30)",
        ("measure", "--pairs", "--ranks", "2", "--out", "{folder}/run"),
        part="sweeps",
    ),
    Stage(
        "sweep-settings",
        "`collbench sweep --ab` measures under two settings in turn",
        ("settings", "--ranks", "4", "--out", "{folder}/run"),
        part="sweeps",
    ),
    Stage("nccl-arrangements", "NCCL in one process and in many", ("nccl_arrangements",), part="bench", gpus=2),
)


def choose(names: Iterable[str], stages: tuple[Stage, ...] = STAGES) -> list[Stage]:
    """The stages of these names or parts, in their order; UsageError with all names where there is none of a name."""
    wanted = set(names)
    known = {stage.name for stage in stages} | {stage.part for stage in stages}
    for name in sorted(wanted - known):
        raise unknown(
            "stage", name, [*dict.fromkeys(stage.part for stage in stages), *(stage.name for stage in stages)]
        )
    return [stage for stage in stages if {stage.name, stage.part} & wanted]
