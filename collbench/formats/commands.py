"""Command lines in a log: how many processes they start, and which variables they set for the tests below them."""

import re
import shlex
from dataclasses import dataclass, field

from collbench.formats.source import LONGEST

LAUNCHERS = re.compile(r"\b(?:mpirun|mpiexec(?:\.hydra)?|srun|prun|prterun|jsrun|aprun|orterun)\b")
PROGRAM = re.compile(r"_(?:perf|test)|\bosu_")
_COUNT = r"(?:[ =]\s{0,8})(\d{1,7})(?![\w.])"
_PROCESSES = re.compile(r"(?<!\S)(?:-np|-n|--n|--ntasks|--np)" + _COUNT)
_NODES = re.compile(r"(?<!\S)(?:-N|--nodes|-nnodes|--nnodes)[ =]?\s{0,8}(\d{1,6})(?![\w.])")
_PER_NODE = re.compile(r"(?<!\S)(?:--?ntasks-per-node|-npernode|--?npernode|-ppn|--?ppn|-N)" + _COUNT)

_RELEVANT = re.compile(r"(?:NCCL|CUDA|UCX|MPIR_CVAR|COLLBENCH)_[A-Z]")
_EXPORT = re.compile(r"(?:^|.{0,200}[$#%>+]\s+)(?:export|setenv|declare -x|unset)\s")
_NAME = r"[A-Z][A-Z0-9_]{1,60}"
_ASSIGNED = re.compile(rf"(?:-[-\w]+=)?({_NAME})=(.*)", re.DOTALL)  # also behind --env= and --export=


def processes_started(line: str) -> int | None:
    """Return how many processes the command of a launcher starts; None if the line is none or does not say.

    Only what stands before the program counts: `-n` means something else to a benchmark.
    """
    launcher = LAUNCHERS.search(line)
    if not launcher:
        return None
    words = line[launcher.start() :]
    program = PROGRAM.search(words)
    before = words[: program.start()] if program else words
    if match := _PROCESSES.search(before):
        return int(match[1])
    per_node, nodes = _PER_NODE.search(before), _NODES.search(before)
    if per_node and nodes and per_node.start() != nodes.start():
        return int(per_node[1]) * int(nodes[1])
    return None


@dataclass
class Commands:
    """The command lines of a log so far, and the variables that the last one was started with."""

    exports: dict[str, str] = field(default_factory=dict)  # they hold for every later command
    of_last: dict[str, str] = field(default_factory=dict)
    _half: str = ""  # of a command that a backslash continues

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the last command."""
        return self.exports | self.of_last

    def take(self, line: str) -> str:
        """Take in a line, and return the whole command that ends in it; nothing where it goes on."""
        text = self._half + line.strip()
        goes_on = text.endswith("\\") and len(text) < LONGEST
        self._half = text[:-1] if goes_on else ""
        if goes_on:
            return ""
        if PROGRAM.search(text):
            self.of_last = {}
        if _RELEVANT.search(text) and not text.startswith("#"):
            for part in re.split(r";|&&", text):
                self._take_part(part.strip())
        return text

    def _take_part(self, part: str) -> None:
        words = _words(part.lstrip("+ "))
        exported = _EXPORT.match(part) is not None or len(words) == 1  # `NAME=VALUE` alone is of a list of variables
        if exported and "unset" in words:
            self.exports = {name: value for name, value in self.exports.items() if name not in words}
        elif exported:
            self.exports |= _assigned(words)
        elif PROGRAM.search(part):
            self.of_last |= _assigned(words)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote is not closed
        return command.replace('"', " ").replace("'", " ").split()


def _assigned(words: list[str]) -> dict[str, str]:
    """Return the variables that the words of a command set: `NAME=VALUE`, in lists of them, or `-genv NAME VALUE`."""
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        if word in ("-genv", "-env", "setenv") and len(words) > at + 2 and re.fullmatch(_NAME, words[at + 1]):
            found[words[at + 1]] = words[at + 2]
        elif at and words[at - 1] == "-c":  # of a shell
            found |= _assigned(_words(word))
        else:
            matches = map(_ASSIGNED.fullmatch, re.split(rf"[,;](?={_NAME}=)", word))
            found |= {match[1]: match[2] for match in matches if match}
    return found
