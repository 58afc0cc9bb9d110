"""The JSON of nvbandwidth (-j), versions 0.5 to 0.10: copies between GPUs.

The source is json_output.cpp of NVIDIA/nvbandwidth.  A test of pairs has a matrix of GB/s; its row is the slowest pair,
which shows a broken link.  Other tests are left out.  A test of both directions has three matrices, the last with the
sum of both directions.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from collbench.collectives import COLLECTIVES
from collbench.commands.formats.foreign_machine import Device, machine_of
from collbench.commands.formats.foreign_row import UnfitRow, make_case
from collbench.commands.formats.imported import Hints, ImportedTest, LeftOut
from collbench.commands.formats.importing import Format
from collbench.commands.formats.source import ForeignFile
from collbench.commands.formats.words import as_list, as_mapping, as_texts, clean, number, seconds_of, whole
from collbench.errors import RunFileError
from collbench.results import Note, Reported

NAME = "nvbandwidth"
START = re.compile(r'\{\s*"nvbandwidth"\s*:')
PAIRS = re.compile(r"(?:multinode_)?device_to_device_(bidirectional_)?memcpy_(read|write)_(ce|sm)")
DEVICE = re.compile(r"\d+: (.{1,80}?) \([0-9A-Fa-f:.]+\)(?:: \((.{1,80})\))?")
BUFFER = 512 << 20  # bytes, the default (-b 512), which the JSON lacks
ASSUMED = f"sizes are assumed to be {BUFFER >> 20} MiB, the default of -b: the JSON has only rates"


def recognises(source: ForeignFile) -> bool:
    """Whether a file has an object of nvbandwidth; warnings may precede it."""
    return START.search(source.head) is not None


def read(source: ForeignFile, hints: Hints) -> list[ImportedTest]:
    """Read the objects of a file, one test each."""
    tests, end = [], 0
    while begin := START.search(source.document, end):
        try:
            value, end = json.JSONDecoder().raw_decode(source.document, begin.start())
        except (ValueError, RecursionError) as error:
            raise RunFileError(f"{source.name}: not JSON: {clean(error)}") from None
        tests.append(_test(as_mapping(value[NAME])))
    return tests


def _test(top: Mapping[str, Any]) -> ImportedTest:
    gpus = filter(None, map(DEVICE.match, as_texts(top.get("GPU Device list"))))
    devices = [Device(at, clean(gpu[2] or "", 64), clean(gpu[1], 64)) for at, gpu in enumerate(gpus)]
    cuda = whole(top.get("CUDA Runtime Version")) or 0
    versions = {"cuda": f"{cuda // 1000}.{cuda % 1000 // 10}", "driver": clean(top.get("Driver Version", ""))}
    rows: list[Reported] = []
    unfit: dict[str, list[str]] = {}  # names of tests by reason
    for at, test in enumerate(map(as_mapping, as_list(top.get("testcases")))):
        try:
            rows.append(_slowest_pair(test, at))
        except UnfitRow as error:
            unfit.setdefault(str(error), []).append(f"{clean(test.get('name'), 60)}, {clean(test.get('status'), 40)}")
    return ImportedTest(
        tool=NAME,
        version=clean(top.get("version", ""), 20),
        machine=machine_of(devices, 2, "gpu", versions, {}),
        results=tuple(rows),
        left_out=LeftOut(f"{why}: {'; '.join(names)}" for why, names in unfit.items() for _ in names).reasons,
        remarks=(ASSUMED, *(f"it says: {clean(top[key])}" for key in ("error", "warning") if key in top)),
    )


def _slowest_pair(test: Mapping[str, Any], at: int) -> Reported:
    """Return the slowest pair of a test of copies between two GPUs; UnfitRow if a pair has no rate."""
    name, lines = clean(test.get("name"), 60), list(map(as_list, as_list(test.get("bandwidth_matrix"))))
    # The last of several matrices is the total.  N/A marks GPUs that cannot reach each other.
    matrix = lines[-len(lines[-1]) :] if lines else []
    cells = [(cell, a, b) for a, line in enumerate(matrix) for b, cell in enumerate(line) if a != b and cell != "N/A"]
    kind = PAIRS.fullmatch(name)
    if not kind or not cells:
        raise UnfitRow("no rates of copies between two GPUs")
    if test.get("status") not in ("Passed", None):
        raise UnfitRow("it did not pass")
    rates = sorted((number(cell) or 0.0, a, b, cell) for cell, a, b in cells)
    if dead := [f"GPU {a} to GPU {b} ({clean(cell, 20)!r})" for rate, a, b, cell in rates if rate <= 0]:
        raise UnfitRow(f"no rate of {', '.join(dead[:3])}")
    if {*map(len, matrix)} != {len(matrix)}:
        raise UnfitRow("its matrix is incomplete")

    # Without a total, as in old versions, the rate of a copy engine is that of one direction.
    directions = 2 if kind[1] and (kind[3] == "sm" or "Total" in clean(test.get("bandwidth_description"))) else 1
    rate, a, b, _ = rates[0]
    collective = COLLECTIVES["bidirectional" if kind[1] else "bandwidth"]
    case = make_case(collective, BUFFER, "uint8", "", 0, 2, in_place=False)
    seconds = seconds_of(directions * BUFFER / rate / 1e9, unit=1.0)
    pairs = f"{len(rates)} pairs"
    if apart := len(matrix) * (len(matrix) - 1) - len(rates):
        pairs += f", {apart} have no rate"
    note = f"slowest of {pairs}, GPU {a} and GPU {b}; fastest {rates[-1][0]:g} GB/s"
    how, printed = f"memcpy-{kind[2]}-{kind[3]}", {"row": at, "name": name}
    return Reported(case, how, "gpu", seconds, "slowest pair", None, (), printed, note=Note.of(note))


FORMAT = Format(NAME, recognises, read, order=1)
