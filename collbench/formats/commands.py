"""What command lines in a log say: which programs ran, and how many ranks they were started with."""

import re

from collbench.formats.imported import known_collective

PROGRAM = re.compile(
    r"(?<![\w.-])((?:[a-z]{1,20}_){1,4}(?:perf|test))(?:_[a-z0-9]{1,10})?(?:\.exe)?(?![\w.-])", re.IGNORECASE
)
_FOREIGN = re.compile(
    r"hypercube|bisection|(?:all_?to_?all|gather|scatter)_?v|all_reduce_(?:bias|group)", re.IGNORECASE
)
_LAUNCHERS = re.compile(r"\b(?:mpirun|mpiexec(?:\.hydra)?|srun|prun|prterun|jsrun|aprun|orterun)\b")
_COUNT = r"(?:[ =]\s{0,8})(\d{1,7})(?![\w.])"
_TOGETHER = re.compile(r"(?<!\S)(?:-np|-n|--n|--ntasks|--np)" + _COUNT)
_NODES = re.compile(r"(?<!\S)(?:-N|--nodes|-nnodes|--nnodes)[ =]?\s{0,8}(\d{1,6})(?![\w.])")
_EACH = re.compile(r"(?<!\S)(?:--?ntasks-per-node|-npernode|--?npernode|-ppn|--?ppn|-N)" + _COUNT)
_AVERAGE = re.compile(r"(?<!\S)(?:-a\s{0,8}|--average[ =]\s{0,8})([0-3])(?!\S)")
_GPUS = re.compile(r"(?<!\S)(?:-g\s{0,8}|--ngpus[ =]\s{0,8})(\d{1,5})(?![\w.])")
_THREADS = re.compile(r"(?<!\S)(?:-t\s{0,8}|--nthreads[ =]\s{0,8})(\d{1,5})(?![\w.])")


def programs(line: str) -> list[str]:
    """The tests of collectives that a line names, also those that collbench has no collective for."""
    if "_perf" not in line and "_test" not in line:
        return []
    named = (match[1].lower() for match in PROGRAM.finditer(line))
    return [name for name in named if known_collective(name) or (name.endswith("_perf") and _FOREIGN.search(name))]


def started(line: str) -> int | None:
    """How many processes a launcher's command starts; None if it is none, or does not say.

    Only what stands before the program counts: `-n` means something else to it.
    """
    launcher = _LAUNCHERS.search(line)
    if not launcher:
        return None
    words = line[launcher.start() :]
    program = re.search(r"\S*(?:_perf|_test|osu_\w{1,40})", words)
    before = words[: program.start()] if program else words
    if match := _TOGETHER.search(before):
        return int(match[1])
    each, nodes = _EACH.search(before), _NODES.search(before)
    return int(each[1]) * int(nodes[1]) if each and nodes and each.start() != nodes.start() else None


def averaged(line: str) -> int | None:
    """Over which ranks a test of nccl-tests was told to report, as -a counts them; None if it was not told."""
    program = PROGRAM.search(line)
    match = _AVERAGE.search(line, program.end()) if program else None
    return int(match[1]) if match else None


def ranks_started(line: str) -> int | None:
    """Ranks of a test of nccl-tests by its command line: processes, threads and GPUs; None if it does not say."""
    program = PROGRAM.search(line)
    if not program:
        return None
    options = line[program.end() :]
    threads, gpus = _THREADS.search(options), _GPUS.search(options)
    own = int(threads[1] if threads else 1) * int(gpus[1] if gpus else 1)
    processes = started(line)
    if _LAUNCHERS.search(line):
        return processes * own if processes else None
    return own if own > 1 else None
