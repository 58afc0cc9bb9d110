"""Lines of other programs in a log: command lines, exported variables, and NCCL's own log."""

import re
import shlex
from dataclasses import dataclass, field

from collbench.commands.formats.foreign_row import known_collective
from collbench.commands.formats.source import LONGEST

LAUNCHERS = re.compile(
    r"\b(?:mpirun(?:_rsh)?|mpiexec(?:\.hydra)?|ibrun|flux run|srun|prun|prterun|jsrun|aprun|orterun)\b"
)
MANY = 2**20  # processes
MOST_NAMED, MOST_FACTS = 1024, 64  # variables, racks and programs; facts of a kind
COMMAND_LINES = 8  # cost of a command in lines of the budget
PROGRAM = re.compile(r"_(?:perf|test)|\bosu_")
LIBRARY = re.compile(r"\b[NR]CCL version (\d{1,3}\.\d{1,3}\.\d{1,3})")
TEST = re.compile(
    r"(?<![\w.-])((?:[a-z]{1,20}_){1,4}(?:perf|test)(?:_[a-z0-9]{1,10})?)(?:\.exe)?(?![\w.-])",
    re.IGNORECASE,
)
NOT_HERE = re.compile(
    r"hypercube|bisection|(?:all_?to_?all|gather|scatter)_?v|all_reduce_(?:bias|group)", re.IGNORECASE
)
VARIABLE = re.compile(r"\b((?:NCCL|RCCL)_[A-Z0-9_]+) set (?:by environment )?to ([^\s]+?)\.?\s*$")
FABRIC = re.compile(r" MNNVL busId \S+ fabric UUID (?!0\.0 )(\S+ cliqueId \S+)")
FACTS = (  # facts in NCCL's log: a name, a pattern, and the value in the wording of later versions
    ("transport", re.compile(r"\bvia ((?:NET|P2P|SHM|COLLNET|NVLS)/.{1,60}?)(?= comm |\s*$)"), r"\1"),
    ("transport", re.compile(r"\bvia direct shared memory\b"), "SHM/direct"),  # before 2.14
    ("transport", re.compile(r"(?i)\bUsing (?:internal )?network (?:Fast)?Socket\b"), "NET/Socket"),
    ("transport", re.compile(r"(?i)\bSelected provider is (?:tcp|sockets|udp)\b"), "NET/Socket"),  # of libfabric
    ("cards", re.compile(r"\bvia NET/[^/]{1,60}/(\d{1,4})\b"), r"\1"),
    ("channels", re.compile(r"\b(\d{1,4}) coll channels"), r"\1"),
    ("nvls", re.compile(r"\b(\d{1,4}) nvls channels"), r"\1"),
)

_MCA = {"mca": "OMPI_MCA_", "gmca": "OMPI_MCA_", "omca": "OMPI_MCA_", "prtemca": "PRTE_MCA_"}  # `--mca NAME VALUE`
_RELEVANT = re.compile(
    r"(?:[NR]CCL|\bFI|CUDA|UC[CX]|MPIR_CVAR|I_MPI|COLLBENCH)_[A-Z]|(?:OMPI|PRTE)_MCA_[a-z]|\s--?(?:[go]|prte)?mca\s"
)
# A `#` after a command or a variable begins a comment; before them, it is a prompt.
_COMMENT = re.compile(rf"^((?>.*?(?:{_RELEVANT.pattern}|{LAUNCHERS.pattern}|{PROGRAM.pattern})).*?)\s#.*")
_EXPORT = re.compile(r"(?:^|.{0,200}[$#%>+]\s+)(?:export|setenv|declare -x|unset)\s")
_MEASURING = {"average": ("a", 1), "blocking": ("z", 0), "local_register": ("R", 0)}  # options and their usual values
_PART = re.compile(r"""(?:[^;&"']|"[^"]*+"|'[^']*+'|&(?!&)|["'])++""")  # part of a line between `;` and `&&`
_NAME = r"(?:(?:OMPI|PRTE)_MCA_\w{1,60}|[A-Z][A-Z0-9_]{1,60})"
_ASSIGNED = re.compile(rf"(?:-[-\w]+=)?({_NAME})=(.*)", re.DOTALL)  # also behind --env= and --export=


def processes_started(line: str) -> int | None:
    """Return the number of processes that a launcher's command starts, or None if the line does not tell it."""
    launcher = LAUNCHERS.search(line)
    if not launcher:
        return None
    words = line[launcher.start() :]
    if re.search(r"\s:\s", words) or launcher[0] == "jsrun":  # several programs; -n of jsrun counts resource sets
        return None

    # Only options before the program count: `-n` of a benchmark has another meaning.
    before = PROGRAM.split(words, maxsplit=1)[0]
    if processes := _option(before, "--?np?", "--ntasks"):
        return processes
    nodes, per_node = _option(before, "-N", "--?n?nodes"), _option(before, "--?n(?:tasks-)?per-?node", "--?ppn")
    return (nodes or 0) * (per_node or 0) or None


def _option(text: str, *names: str) -> int | None:
    """Return the number after an option, or None."""
    match = re.search(rf"(?<!\S)(?:{'|'.join(names)})[ =]?\s{{0,8}}(\d{{1,7}})(?![\w.])", text)
    return int(match[1]) if match else None


@dataclass
class Context:
    """Facts from lines of other programs on the tables below them; NCCL's lines also apply to the table around them."""

    programs: tuple[str, ...] = ()  # programs of nccl-tests in commands since the last table
    ranks: int | None = None  # of the last command
    processes: int | None = None  # of the last launcher of a benchmark
    launch: tuple[int, str] = 0, ""  # number and text of the launcher's line, or of a command without a launcher
    started: int = 0  # processes that it starts; MANY if unknown
    launched: bool = False  # whether the last command has a launcher
    options: dict[str, int] = field(default_factory=dict)  # of the last command, if not the defaults
    library: str = ""  # version of NCCL
    variables: dict[str, str] = field(default_factory=dict)  # environment of the last command
    used: bool = False  # whether a table follows the last command
    heeded: dict[str, str] = field(default_factory=dict)  # variables in NCCL's log
    facts: dict[str, str] = field(default_factory=dict)  # transports and numbers of channels in NCCL's log
    fabrics: set[str] = field(default_factory=set)  # NVLink fabrics beyond a host, as NCCL names them
    _exports: dict[str, str] = field(default_factory=dict)  # apply to every later command
    _half: str = ""  # beginning of a command that a backslash continues

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a table; NCCL's log overrides the command."""
        return self.variables | self.heeded

    def take_log(self, line: str) -> None:
        """Read a line of NCCL's log."""
        if len(self.fabrics) < MOST_NAMED:
            self.fabrics.update(FABRIC.findall(line))
        if match := VARIABLE.search(line):
            self.heeded = _merged(self.heeded, {match[1]: match[2]})
        for name, pattern, words in FACTS:
            if match := pattern.search(line):
                value = re.sub(r"/\d[^/]*", "", match.expand(words))  # without the number of the card
                values = {value, *self.facts.get(name, value).split(", ")}
                self.facts[name] = ", ".join(sorted(values)[:MOST_FACTS])

    def take(self, line: str) -> int:
        """Read a line of another program; return its cost in lines of the budget."""
        text = line.strip()
        text = text.partition(" #")[0] if self._half else _COMMENT.sub(r"\1", text)
        if text.endswith("\\") and len(self._half) < LONGEST:
            self._half += text[:-1]
            return 1
        text, self._half = self._half + text, ""
        if re.match(r"#\w", text):  # commented out; `# ` is a prompt before a command
            return 1
        if match := LIBRARY.search(text):
            self.library = match[1]
        if LAUNCHERS.search(text) and PROGRAM.search(text):
            self.processes = processes_started(text)
            self.launch, self.started = (self.launch[0] + 1, text), self.processes or MANY
        is_command = PROGRAM.search(text) is not None or LAUNCHERS.search(text) is not None
        relevant = _RELEVANT.search(text) is not None and not text.startswith("#")

        # A command starts with the exported variables.  A program's name alone may be part of any message.
        if is_command and (self.used or relevant):
            self.variables = dict(self._exports)
        was_used = self.used
        if is_command:
            self._take_options(text)
            self.used = self.used and not LAUNCHERS.search(text)
        if was_used and not self.used:  # a new process begins a new log
            self.heeded, self.facts = {}, {}
        if relevant:
            for part in _PART.findall(text):
                self._take_part(part.strip(), is_command)
        return COMMAND_LINES if is_command or relevant else 1

    def _take_part(self, part: str, is_command: bool) -> None:
        """Read the variables that a part of a line sets or exports."""
        words = _words(part.lstrip("+ "))
        exported = _EXPORT.match(part) is not None or len(words) == 1  # `NAME=VALUE` alone belongs to a list
        if exported and "unset" in words:
            self._exports = {name: value for name, value in self._exports.items() if name not in words}
            self.variables = {name: value for name, value in self.variables.items() if name not in words}
        elif exported:
            self._exports = _merged(self._exports, _assigned(words))
        if exported and self.used:
            self.variables = dict(self._exports)
        elif exported or is_command:
            self.variables = _merged(self.variables, _assigned(words))

    def _take_options(self, line: str) -> None:
        commands = [match for match in TEST.finditer(line) if _is_test(match[1].lower())]
        if not commands:
            return
        if not LAUNCHERS.search(line) and not line.startswith("+"):  # `+` is a shell's echo below its launcher
            self.launch, self.started = (self.launch[0] + 1, line), 0
        options = line[commands[0].end() :]
        per_process = (_option(options, "-t", "--nthreads") or 1) * (_option(options, "-g", "--ngpus") or 1)
        self.launched = LAUNCHERS.search(line) is not None

        # A program without a launcher is one process.  With one GPU, a launcher in a script is more likely.
        processes = processes_started(line) if self.launched else int(per_process > 1)
        self.ranks = (processes or 0) * per_process or None
        values = {name: _option(options, f"-{letter}", f"--{name}") for name, (letter, _) in _MEASURING.items()}
        self.options = {name: value for name, value in values.items() if value not in (None, _MEASURING[name][1])}
        names = tuple(match[1].lower() for match in commands)
        self.programs, self.used = names if self.used else (*self.programs, *names)[-MOST_NAMED:], False


def _merged(known: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    """Merge variables; beyond MOST_NAMED names, only update known ones, since each merge copies all."""
    return known | (more if len(known) < MOST_NAMED else {name: more[name] for name in more.keys() & known.keys()})


def _is_test(name: str) -> bool:
    """Whether a word is a program of nccl-tests, also of a collective that collbench lacks."""
    return known_collective(name) is not None or ("_perf" in name and NOT_HERE.search(name) is not None)


def _words(command: str) -> list[str]:
    command = re.sub(r"""(["']),\s*(?=\1)""", r"\1 ", command)  # a list of arguments in JSON
    try:
        return shlex.split(command)
    except ValueError:  # a quote is not closed
        return command.replace('"', " ").replace("'", " ").split()


def _assigned(words: list[str]) -> dict[str, str]:
    """Return the variables that words set by `NAME=VALUE`, lists of it, or `-genv NAME VALUE`, but not `NAME=$1`."""
    assigned: dict[str, str] = {}
    for at, word in enumerate(words):
        if word in ("-genv", "-env", "setenv") and len(words) > at + 2 and re.fullmatch(_NAME, words[at + 1]):
            assigned[words[at + 1]] = words[at + 2]
        elif word[:1] == "-" and (prefix := _MCA.get(word.lstrip("-"))) and len(words) > at + 2:
            assigned[prefix + words[at + 1]] = words[at + 2]
        elif at and words[at - 1] == "-c":  # the command of a shell
            assigned |= _assigned(_words(word))
        else:
            matches = map(_ASSIGNED.fullmatch, re.split(rf"[,;](?={_NAME}=)", word))
            assigned |= {match[1]: match[2].rstrip(",]") for match in matches if match}
    return {name: value for name, value in assigned.items() if "$" not in value}
