"""Topics of `collbench help`: what no command's own help has room for, one function each."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import click


class Variable(NamedTuple):
    """A variable of the environment that changes what collbench does."""

    name: str
    meaning: str


VARIABLES = (
    Variable("COLLBENCH_CACHE", "where compiled kernels and the index of runs are kept; else XDG_CACHE_HOME/collbench"),
    Variable("COLLBENCH_KERNELS", "a folder of kernels to measure instead of those that come along"),
    Variable("COLLBENCH_NCCL", "the NCCL library to load (libnccl.so.2); else the one that CuPy loads"),
    Variable("COLLBENCH_TRACEBACK", "1 prints the traceback of an unforeseen error, which else goes to a file"),
    Variable("CXX", "the C++ compiler for kernels on a CPU; else c++, g++, clang++ or zig, whichever is there"),
    Variable("CUDA_VISIBLE_DEVICES", "the GPUs that ranks may have, as every CUDA program heeds it"),
    Variable("CUDA_LAUNCH_BLOCKING", "refused where it is set: launches that wait cannot be measured"),
    Variable("NCCL_TESTS_MIN_BW", "GB/s of bus bandwidth on average below which all_reduce_perf and its like fail"),
    Variable("MPI4PY_LIBMPI", "the MPI library whose launcher starts the ranks, a path or a name; as `--mpi` with one"),
    Variable("MPI4PY_MPIABI", "the ABI of that library, as mpi4py heeds it"),
    Variable("NO_COLOR", "without colours, as on a pipe; https://no-color.org"),
    Variable("TERM", "what the terminal understands; nothing or dumb: no colours, and no line of progress"),
    Variable("COLUMNS", "the width of tables, where it is not the terminal's"),
    Variable("PATH", "where mpiexec, compilers and nvidia-smi are looked for; entries that are relative do not count"),
    Variable("XDG_CACHE_HOME", "the folder of caches, else ~/.cache"),
    Variable("XDG_DATA_HOME", "the folder of data, else ~/.local/share: for `collbench completion --install`"),
)
"""Of a user; what collbench sets for its own processes is not among them."""

KEPT = "NCCL_*, CUDA_*, MPIR_CVAR_* and UCX_* are kept in the run file, and compared; `sweep --ab` measures two values."


def environment() -> str:
    """Variables, with what they do."""
    return _listed("Variables of the environment", VARIABLES, KEPT)


def nccl_tests() -> str:
    """Options of nccl-tests, and what they mean here."""
    from collbench.cli._nccl_options import AGGREGATED, UNNEEDED
    from collbench.cli._perf import programs
    from collbench.cli.sweep import command

    shared = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    rows = [
        (", ".join(option.opts), option.help or "") for option in shared if _short(option) in tuple("begfinwcdorGT")
    ]
    rows += [
        ("-t, --nthreads", "Times -g it is the number of ranks."),
        ("-J, --output_file", "Write nccl-tests' JSON there."),
        ("-m, --agg_iters", f"No effect: {AGGREGATED}. With MIN:MAX it is OSU's range of sizes."),
        *((f"-{option.letter}, --{option.name}", f"No effect: {option.why}.") for option in UNNEEDED),
    ]
    words = f"Programs that print nccl-tests' table: {', '.join(programs())}."
    return _listed("Options of nccl-tests, as `collbench sweep` and these programs take them", rows, words)


def status() -> str:
    """Exit statuses of all commands."""
    rows = [
        ("0", "good: everything that has a number was right"),
        ("1", "something was wrong or failed; the rows say what"),
        ("2", "the command cannot be carried out as it is written; one line says why"),
        ("3, 4", "of `compare --gate`: a regression; or one cannot be excluded"),
        ("129, 130, 143", "ended by a signal (HUP, INT, TERM); the run file has what was measured"),
        ("141", "nobody reads the output any more, as after `| head`"),
    ]
    return _listed("Exit statuses", rows)


TOPICS: dict[str, Callable[[], str]] = {
    "environment": environment,
    "nccl-tests": nccl_tests,
    "status": status,
}


def data_folder() -> Path:
    """Where a user's data is, by the XDG specification, which has relative folders ignored."""
    chosen = Path(os.environ.get("XDG_DATA_HOME", ""))
    return chosen if chosen.is_absolute() else Path.home() / ".local" / "share"


def _short(option: click.Option) -> str:
    return next((name[1:] for name in option.opts if len(name) == 2), "")


def _listed(title: str, rows: Iterable[tuple[str, str]], words: str = "") -> str:
    """A definition list as wide as the terminal is, or 100 columns at most."""
    width = min(100, click.get_current_context().max_content_width or 100)
    formatter = click.HelpFormatter(max_width=width)
    with formatter.section(title):
        formatter.write_dl(list(rows))
    if words:
        formatter.write_paragraph()
        formatter.write_text(words)
    return formatter.getvalue().rstrip("\n")
