"""Files that nobody means well with, and arguments of the kind: records, for every command that reads or takes one.

`HOSTILE` has what a file may be and hold, by the kind of file that it pretends to be; `COMMANDS` says where in each
command a file goes; `ARGUMENTS` has words for the command line.  tests/cli/test_hostile.py tries them together.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench.commands.formats.importing import formats
from collbench.runfile.store import NAME

ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b2J"
FACES = {
    "escapes": f"name{ESCAPES}",
    "right to left": "abc\u202egnp.\u2066x\u200f",
    "zero width": "a\u200bb\u2060c\ufeffd\u3164\u115f\u034f",
    "mathtext": "$\\frac{1}{$ $x^2$ \\input{/etc/passwd}",
    "half a pair": "x\ud800y",
    "100 kB": "n" * 100_000,
    "100,000 blanks": "a" + " " * 100_000 + "b",
    "lines": "one\ntwo\r\nthree\u2028four\x85five\x0b\x0c",
    "formula": "=cmd|'/c calc'!A0",
    "markup": "<script>alert(1)</script>]]><!--|`*_[x](javascript:1)",
    "a way out": "../../../../tmp/out",
    "null": "a\x00b",
}
"""Texts by what they do to whoever shows them."""
_WHOLE = {"2**80": 2**80, "2**63": 2**63, "400 digits": int("9" * 399), "negative": -1}
_OTHER = {"half": 0.5, "tiny": 5e-324, "huge": 1e308, "true": True, "text": "8", "list": [8], "none": None}
NUMBERS: dict[str, Any] = {**_WHOLE, **_OTHER}
LITERALS = {"5,000 digits": "9" * 5000, "inf": "Infinity", "nan": "NaN", "1e999": "1e999", "minus": "-0"}


@dataclass(frozen=True)
class Hostile:
    """A thing in the file system: `make` puts it at a path."""

    name: str
    make: Callable[[Path], object]


def _socket(path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    try:
        os.chdir(path.parent)  # names of sockets are short
        listening.bind(path.name)
    finally:
        os.chdir(here)
        listening.close()


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**34)


THINGS = (
    Hostile("a pipe without a writer", os.mkfifo),
    Hostile("an endless device", lambda path: path.symlink_to("/dev/zero")),
    Hostile("a socket", _socket),
    Hostile("an empty folder", Path.mkdir),
    Hostile("a link to itself", lambda path: path.symlink_to(path.name)),
    Hostile("16 GiB of nothing", _sparse),
    Hostile("not there", lambda path: None),
    Hostile("empty", lambda path: path.write_bytes(b"")),
    Hostile("noise", lambda path: path.write_bytes(bytes(range(256)) * 64)),
    Hostile("nulls", lambda path: path.write_bytes(bytes(100_000))),
    Hostile("deep lists", lambda path: path.write_text("[" * 100_000)),
    Hostile("deep tables", lambda path: path.write_text('{"a":' * 100_000)),
    Hostile("one line of 20 MB", lambda path: path.write_text("x " * 10_000_000)),
    Hostile("a terminal's orders", lambda path: path.write_text(ESCAPES * 1000)),
)
"""What is at a path, whatever was expected there."""

CASE: dict[str, Any] = json.loads(
    '{"collective": "allreduce", "nbytes": 1024, "dtype": "float", "redop": "sum", "root": 0, "ranks": 2,'
    ' "in_place": false}'
)
ROW: dict[str, Any] = CASE | json.loads(
    '{"kind": "measurement", "implementation": "mpi", "platform": "cpu", "launches": 64, "check": "ok",'
    ' "seconds": [1e-6, 1.1e-6, 1.2e-6, 1.05e-6, 1.15e-6, 1.08e-6, 1.12e-6]}'
)
PLAN: dict[str, Any] = CASE | json.loads(
    '{"kind": "planned", "implementation": "tp2 pp4 dp8 mb1 zero1", "platform": "model", "dtype": "bfloat16",'
    ' "ranks": 64, "purpose": "layout", "system": "dgx-h100", "parts": {"computing": 1.0, "bubble": 0.25},'
    ' "memory": {"weights": 34359738368.0}, "capacity": 68719476736.0, "low": 1.0, "high": 1.5, "tokens": 1048576,'
    ' "utilisation": 0.4, "price": 2.0, "total": 1e12}'
)
PURPOSES = ("layout", "scale", "interconnect", "cost")
HEADER: dict[str, Any] = {
    "kind": "header",
    "format": 2,
    "collbench": "1.0",
    "command": ["collbench", "sweep"],
    "started": "2026-11-01T12:00:00+00:00",
    "environment": {"host": "node1", "system": "Linux", "versions": {"mpi": "1"}, "variables": {"NCCL_ALGO": "Ring"}},
    "topology": {"name": "2 ranks on a CPU", "platform": "cpu", "ranks": 2, "sockets": [{"name": "CPU"}]},
    "sweep": {"collectives": ["allreduce"], "dtypes": ["float"], "implementations": ["mpi"], "ranks": 2},
}
END = {"kind": "end", "finished": "2026-11-01T12:00:01+00:00", "status": 0}


def run_text(header: Mapping[str, Any] = {}, *rows: Mapping[str, Any]) -> str:
    """A run file: this header's fields over a good one's, a good curve, and these rows."""
    curve = [ROW | {"nbytes": 8 << place} for place in range(8)]
    return "".join(json.dumps(line) + "\n" for line in (HEADER | dict(header), *curve, *rows, END))


def _told(face: str) -> Iterator[tuple[str, str]]:
    """Run files that say this text wherever a text can stand."""
    header = {
        "command": [face] * 3,
        "started": face,
        "collbench": face,
        "environment": {"host": face, "system": face, "versions": {face: face}, "variables": {"NCCL_ALGO": face}},
        "topology": HEADER["topology"] | {"name": face, "sockets": [{"name": face, "host": face}]},
        "sweep": {"spin": face, "implementations": [face], "sampling": {face: face}},
        "interleaved": {"id": face, "setting": face},
        face: face,
    }
    common = {"implementation": face, "picked": face, "remarks": [face], "spin": face}
    mismatch = dict.fromkeys(("rank", "index", "chunk", "wrong"), 0) | {"got": face, "expected": face}
    how = {"algorithm": face, "protocol": face}
    rows = [
        ROW | common,
        ROW | common | {"platform": face},
        ROW | {"check": "wrong", "mismatch": mismatch},
        ROW | {"kind": "skipped", "reason": face},
        ROW | {"kind": "failed", "reason": face, "implementation": face},
        ROW | common | {"kind": "prediction", "seconds": 1e-6, "low": 1e-7, "high": 1e-5} | how,
        ROW | common | {"kind": "reported", "seconds": 1e-6, "statistic": face, "wrong": 0, "printed": {face: face}},
        ROW | {"collective": face},
        ROW | {"dtype": face},
        ROW | {"kind": face},
    ]
    yield "everywhere", run_text(header, *rows)
    reported = [row | {"kind": "reported", "seconds": 1e-6, "statistic": face, "wrong": 0} for row in (ROW, rows[0])]
    test = {"format": face, "tool": face, "version": face, "file": face, "layout": {"header": face}, "sweep": {face: 1}}
    yield "imported", run_text(header | {"imported": {"tool": face, "left_out": [face], "tests": [test]}}, *reported)


def _plans() -> Iterator[tuple[str, str]]:
    """Run files of nothing but plans, which say odd words and numbers wherever they can."""
    every = [PLAN | {"purpose": purpose, "ranks": ranks} for purpose in PURPOSES for ranks in (64, 128)]
    header = json.dumps(HEADER)

    def of(*rows: Mapping[str, Any]) -> str:
        return "".join(f"{line}\n" for line in (header, *map(json.dumps, rows)))

    yield "plans alone", of(*every)
    for name, face in FACES.items():
        said = {"implementation": face, "system": face, "remarks": [face]}
        named = [PLAN | {field: {face: 1.0}} for field in ("parts", "memory")]
        yield f"plans, {name}", of(*(row | said for row in every), PLAN | {"purpose": face}, *named)
    for name, number in {**NUMBERS, "zero": 0, "one": 1, "2**20": 2**20, "1e8": 1e8}.items():
        plain = [field for field, value in PLAN.items() if isinstance(value, int | float)]
        nested = [(field, key) for field in ("parts", "memory") for key in PLAN[field]]
        odd = [row | {field: number} for row in every for field in plain]
        odd += [row | {field: PLAN[field] | {key: number}} for row in every for field, key in nested]
        yield f"plans, number {name}", of(*every, *odd)
    yield "plans in great number", of(*(row | {"ranks": 1 + place} for place in range(400) for row in every))


def _scans() -> Iterator[tuple[str, str]]:
    """Run files of a scan and of pairs, with odd names of members and odd numbers."""
    case = {name: ROW[name] for name in ("platform", "dtype", "root", "in_place", "implementation")}
    case |= {"collective": "sendrecv", "redop": "none", "ranks": 3, "nbytes": 1024}
    scan, header = case | {"scan": {"group": 2, "slower": 0.1, "sizes": [1024]}}, json.dumps(HEADER)
    pair = case | {"kind": "pair", "seconds": [1e-6] * 7}

    def of(names: Any, groups: Any, seconds: Any) -> str:
        members = scan | {"kind": "members", "names": names, "levels": [{"kind": "node", "units": names}]}
        rounds = [scan | {"kind": "round", "groups": groups, "seconds": [seconds], "took": 1e-3, "number": 0}] * 40
        return "".join(f"{line}\n" for line in (header, *map(json.dumps, (members, *rounds))))

    for name, face in FACES.items():
        yield f"scan, {name}", of([face, "b", "c"], [[0, 1]], 1e-6)
    for name, number in {**NUMBERS, "zero": 0, "three": 3}.items():
        yield f"scan of member {name}", of(["a", "b", "c"], [[0, number]], 1e-6)
        yield f"scan in {name} seconds", of(["a", "b", "c"], [[0, 1]], number)
        ends = [{"sender": number, "receiver": 1}, {"sender": 0, "receiver": number}, {"sender": 2, "receiver": 1}]
        rows = [pair | {"ranks": ranks, "pair": end | {"pattern": "one way"}} for ranks in (3, number) for end in ends]
        yield f"pairs {name}", "".join(f"{line}\n" for line in (header, *map(json.dumps, rows)))


def _run_files() -> Iterator[tuple[str, str]]:
    for name, face in FACES.items():
        for where, text in _told(face):
            yield f"{name}, {where}", text
    for name, number in NUMBERS.items():
        fields = ("nbytes", "root", "ranks", "launches", "in_place")
        times = [ROW | {"seconds": [number] * 7}, ROW | {"seconds": number}, ROW | {"estimate": number}]
        topology = HEADER["topology"] | {"ranks": number, "nodes": number}
        rows = [ROW | {field: number} for field in fields]
        yield f"number {name}", run_text({"topology": topology, "sweep": {"ranks": number}}, *rows, *times)
        yield f"format {name}", run_text({"format": number})
        yield f"a header of {name}", run_text({field: number for field in HEADER if field not in ("kind", "format")})
    for name, literal in LITERALS.items():
        row = json.dumps(ROW)
        yield f"literal {name}", run_text() + row.replace("1024", literal) + "\n" + row.replace("1e-06", literal) + "\n"
        yield f"header {name}", run_text().replace('"ranks": 2', f'"ranks": {literal}')
    deep = json.dumps(HEADER)[:-1] + ', "deep": ' + '{"a":' * 400 + "1" + "}" * 400 + "}\n"
    yield "a deep header", deep + run_text().partition("\n")[2]
    yield "twice", run_text().replace('"nbytes": 8,', '"nbytes": 8, "nbytes": 16,')
    yield "a header alone", run_text().partition("\n")[0]
    yield "an object alone", "{}"
    many = (ROW | {"ranks": 2**30, "nbytes": 2**62 >> place} for place in range(9))
    yield "ranks in great number", run_text({}, *many)
    yield from _plans()
    yield from _scans()
    yield "5,000 bad rows", run_text() + '{"kind": "measurement"}\n' * 5000


TOML = """name = "x"
[gpu]
arch = "sm90"
[node]
gpus = 8
fabric = "nvswitch"
[nic]
per_node = 8
rate = 50
transport = "ib-gdr"
[scale]
nodes = 4
"""


def _systems() -> Iterator[tuple[str, str]]:
    for name, face in FACES.items():
        quoted = json.dumps(face).replace("\\ud800", "?")
        yield f"name, {name}", TOML.replace('"x"', quoted)
        yield f"key, {name}", TOML + f"\n{quoted} = 1\n"
        yield f"choice, {name}", TOML.replace('"nvswitch"', quoted)
        yield f"file, {name}", TOML + f"[calibration]\nfile = {quoted}\n"
    numbers = {**{name: json.dumps(value) for name, value in NUMBERS.items() if value is not None}, **LITERALS}
    numbers |= {"10**12": "1000000000000", "hexadecimal": "0x" + "f" * 5000, "inf": "inf", "nan": "nan", "zero": "0"}
    for name, number in numbers.items():
        for key in ("gpus = 8", "nodes = 4", "rate = 50", "per_node = 8"):
            word = key.partition(" ")[0]
            yield f"{word} {name}", TOML.replace(key, f"{word} = {number}")
    yield "deep", TOML + "x = " + "[" * 10_000
    yield "dotted", TOML + "a." * 60_000 + "b = 1\n"
    yield "many tiers", TOML + '[[tier]]\nname = "t"\nradix = 64\n' * 5000
    yield "many keys", TOML + "".join(f"k{place} = 1\n" for place in range(20_000))
    yield "itself", TOML + '[calibration]\nfile = "hostile.toml"\n'


def _logs() -> Iterator[tuple[str, str]]:
    table = (
        "#\n# nThread 1 nGpus 2 minBytes 8 maxBytes 8\n#   size  count  type  redop  root  time  algbw  busbw #wrong\n"
    )
    row = f"{8:12} {2:12} {'float':>8} {'sum':>6} {-1:6}" + "    5.00    0.00    0.00      0" * 2 + "\n"
    for name, face in FACES.items():
        yield f"nccl-tests, {name}", face + "\n" + table + row + face + row.replace("float", face)
        osu = f"# OSU MPI Allreduce Latency Test v7.4 {face}\n# Size Avg Latency(us)\n8 1.23\n16 {face}\n"
        yield f"OSU, {name}", osu
        columns = "topology,implementation,platform,collective,ranks,nbytes,dtype,redop,root,in_place,seconds,note\n"
        yield f"pairs, {name}", f'"{face}",b,2\nb,c,3\nc,"{face}",2\n'
        yield f"csv, {name}", columns + f'"{face}","{face}",cpu,allreduce,2,8,float,sum,0,0,1e-6,"{face}"\n'
    for name, number in {**{key: str(value) for key, value in NUMBERS.items()}, **LITERALS}.items():
        yield f"nccl-tests {name}", table + row.replace("  8 ", f" {number} ") + row.replace("5.00", number)
        yield f"pairs {name}", f"a,b,2\nb,c,{number}\nc,a,3\n"
        yield f"csv {name}", f"{columns}t,mpi,cpu,allreduce,{number},{number},float,sum,{number},0,{number},\n"


def _written(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(text.encode(errors="surrogatepass"))


def _records(texts: Iterator[tuple[str, str]]) -> tuple[Hostile, ...]:
    return tuple(Hostile(name, _written(text)) for name, text in texts)


HOSTILE: Mapping[str, tuple[Hostile, ...]] = {
    NAME: THINGS + _records(_run_files()),
    "hostile.toml": THINGS + _records(_systems()),
    "hostile.log": THINGS + _records(_logs()),
}
"""By the name that such a file has."""

RUN, SYSTEM, LOG = HOSTILE
FILE, GOOD = "{file}", "{good}"  # in a command: the hostile file, and the folder of a good run
_WAYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    RUN: {
        "plot": ("{file} -o figures --view all --format svg",),
        "report": ("{file} -o report.html",),
        "lesson": ("{file} {good} -o lesson",),
        "compare": ("{good} {file} --gate --junit junit.xml", "{file} {good} --csv", "{file} {file} --json"),
        "predict": ("--fit {file}", "--fit {file} -o fit.toml"),
        "check": (
            "{file} --junit check.xml --json check.json",
            "{file} --on dgx-h100",
            "{good} --reference {file}",
            "--fleet {folder} --json fleet.json --csv fleet.csv",
        ),
        "export": tuple(f"{{file}} --to {name}" for name, known in formats().items() if known.write),
        "import": ("{file} -o imported",),
        "train": ("--on {file} --machine dgx-h100 --batch 8 --model gpt2-small --out planned",),
        "list": ("runs {folder}", "runs {folder} --json"),
        "scan": ("{file} --junit junit.xml --json scan.json", "{file} --exclude-file out.txt --metrics scan.prom"),
    },
    SYSTEM: {
        "topo": ("{file}", "{file} --json"),
        "predict": ("{file} -b 8 -e 64 --impl all --no-plot --out predicted", "--fit {good} --on {file} -o fit.toml"),
        "scan": ("--on {file} --nodes 8 --inject node=3:0.5 --out tried",),
        "step": ("scale --on {file} --ranks 1,2 --out predicted", "overlap --on {file} --ranks 2 --out predicted"),
        "train": (
            "--on {file} --gpus 2 --batch 8 --model gpt2-small --out planned",
            "--model {file} --gpus 2 --batch 8 --out planned",
        ),
        "check": ("{good} --on {file}", "{good} --reference {file}"),
        "plot": ("{good} --view bound --on {file} -o figures",),
        "report": ("{good} --on {file} -o report.html",),
    },
    LOG: {
        "import": ("{file} -o imported", "{file} -o imported --ranks 2 --op allreduce"),
        "launch": ("--hostfile {file} -- sweep --on cpu",),
        "scan": ("{file} --junit junit.xml --json scan.json", "{file} --exclude-file out.txt --metrics scan.prom"),
    },
}
COMMANDS: Mapping[str, Mapping[str, tuple[tuple[str, ...], ...]]] = {
    kind: {command: tuple(tuple(way.split()) for way in ways) for command, ways in commands.items()}
    for kind, commands in _WAYS.items()
}
"""By the kind of file, the commands that read one, and with what arguments."""

_ODD = "2**80 10**400 1e999 nan inf -8 0.0001 1e308"
_SIZES = (*_ODD.split(), "9" * 400, "9" * 5000, str(2**70), "1" + "0" * 12)
_SPOKEN = [face.replace("\ud800", "\udcff") for face in FACES.values() if "\0" not in face]  # as the system hands on
_MEASURED = ("sweep", "--on", "cpu", "--impl", "mpi", "--no-plot", "-e", "8", "-n", "1")
_OPTIONS = {
    "sweep": "--op --impl --on -d --redop -b -e -i --spin --ab --out",
    "predict": "--op -d -b --what-if",
    "compare": "--margin --confidence --only --csv --against",
    "plot": "-o --view --style --impl --format --on",
    "verify": "--op",
    "explain": "--op",
    "topo": "--nodes -o",
    "report": "--on",
    "export": "--to",
    "import": "--op",
    "launch": "--hosts --launcher",
    "check": "--on --op --impl --slower --budget --exit",
}
_TAKING = [(command, option) for command, options in _OPTIONS.items() for option in options.split()]


def _arguments() -> Iterator[tuple[str, ...]]:
    predict = ("predict", "dgx-h100", "--no-plot")
    for number in _SIZES:
        for option in ("-b", "-e", "-f", "-i", "--nodes", "--ranks", "--ranks-per-node"):
            yield (*predict, option, number)
        yield from (("topo", "dgx-h100", option, number) for option in ("--nodes", "--ranks"))
        yield from ((*_MEASURED, option, number) for option in ("-b", "-e", "--ranks", "-n", "-w", "--root"))
        yield from ((*_MEASURED, option, number) for option in ("--budget", "--timeout") if "." not in number)
        yield ("topo", "--ranks", number)
    for factor in ("1.0000001", "nan", "inf"):
        yield ("predict", "dgx-h100", "-b", "8", "-e", "8G", "-f", factor)
    yield ("predict", "dgx-h100", "-b", "8", "-e", "8G", "-i", "1")
    yield (*_MEASURED, "-e", "8G", "-i", "1")
    for face in _SPOKEN:
        yield (face,)
        yield from ((command, face) for command in ("plot", "topo", "import", "runs", "report", "fit", "predict"))
        yield from ((command, option, face) for command, option in _TAKING)


ARGUMENTS = tuple(_arguments())
"""Command lines that are refused, or carried out, in a moment and in one line."""
