"""The JSON of nvbandwidth (-j), as json_output.cpp of NVIDIA/nvbandwidth v0.5 to v0.10 writes it: copies between GPUs.

A test of pairs has a matrix of GB/s.  Its row is the slowest pair, which a broken link makes slow; other tests are left
out.  In tests of both directions three matrices follow each other, the last of which is the sum of both.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from collbench.errors import RunFileError
from collbench.formats import Format
from collbench.formats.imported import Device, ForeignRow, Hints, ImportedTest, LeftOut, machine_of, make_results
from collbench.formats.source import HEAD, Source, as_list, as_mapping, as_texts, clean, number, seconds_of, whole

NAME = "nvbandwidth"
START = re.compile(r'\{\s*"nvbandwidth"\s*:')
PAIRS = re.compile(r"(?:multinode_)?device_to_device_(bidirectional_)?memcpy_(read|write)_(ce|sm)")
DEVICE = re.compile(r"\d+: (.{1,80}?) \([0-9A-Fa-f:.]+\)(?:: \((.{1,80})\))?")
BUFFER = 512 << 20  # bytes, its default (-b 512), which no version writes


def recognises(source: Source) -> bool:
    """Whether such an object begins in it; warnings may stand above."""
    return START.search(source.text[:HEAD]) is not None


def read(source: Source, hints: Hints) -> list[ImportedTest]:
    """Read the objects of a file, a test each."""
    tests, end = [], 0
    while begin := START.search(source.text, end):
        try:
            value, end = json.JSONDecoder().raw_decode(source.text, begin.start())
        except json.JSONDecodeError as error:
            raise RunFileError(f"{source.name}:{error.lineno}: not JSON: {error.msg}") from None
        except (ValueError, RecursionError):
            raise RunFileError(f"{source.name}: its JSON has too long numbers or is nested too deeply") from None
        tests.append(_test(source, as_mapping(value[NAME])))
    if not tests:
        raise RunFileError(f"{source.name}: no object of nvbandwidth in it")
    return tests


def _test(source: Source, top: Mapping[str, Any]) -> ImportedTest:
    found = [DEVICE.match(text) for text in as_texts(top.get("GPU Device list"))]
    devices = [Device(at, clean(name[2] or "", 64), clean(name[1], 64)) for at, name in enumerate(found) if name]
    cuda = whole(top.get("CUDA Runtime Version")) or 0
    versions = {
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        "driver": clean(top.get("Driver Version")),
    }
    machine, left_out = machine_of(devices, 2, "gpu", versions, {}), LeftOut()
    results = [
        result
        for how, row in _rows(list(map(as_mapping, as_list(top.get("testcases")))), left_out)
        for result in make_results(
            source.name, [row], machine, implementation=how, statistic="slowest pair", left_out=left_out
        )
    ]
    return ImportedTest(
        format=NAME,
        tool=NAME,
        version=clean(top.get("version") or "", 20),
        file=source.file,
        machine=machine,
        results=tuple(results),
        left_out=left_out.reasons,
        remarks=(
            f"sizes are taken to be {BUFFER >> 20} MiB, the default of -b: only rates are written",
            *(f"it says: {clean(top[key])}" for key in ("error", "warning") if key in top),
        ),
    )


def _rows(testcases: list[Mapping[str, Any]], left_out: LeftOut) -> Iterator[tuple[str, ForeignRow]]:
    """Yield the implementation and the row of each test of pairs that passed."""
    others: dict[str, list[str]] = {}
    for at, testcase in enumerate(testcases):
        name, status = clean(testcase.get("name"), 60), clean(testcase.get("status"), 20)
        kind, rates = PAIRS.fullmatch(name), _rates(as_list(testcase.get("bandwidth_matrix")))
        if not kind or status != "Passed" or not rates:
            why = ("without a bandwidth" if status == "Passed" else status) if kind else "no copies between two GPUs"
            others.setdefault(why, []).append(name)
            continue
        # Where there is no total, as in old versions, a copy engine's rate is that of one direction.
        both = kind[1] and (kind[3] == "sm" or "Total" in clean(testcase.get("bandwidth_description")))
        (a, b), rate = min(rates.items(), key=lambda pair: pair[1])
        yield (
            f"memcpy-{kind[2]}-{kind[3]}",
            ForeignRow(
                number=at,
                collective="bidirectional" if kind[1] else "bandwidth",
                nbytes=BUFFER,
                dtype="uint8",
                seconds=seconds_of((2 if both else 1) * BUFFER / rate / 1e9, unit=1.0),
                note=f"slowest of {len(rates)} pairs, GPU {a} and GPU {b}; fastest {max(rates.values()):g} GB/s",
                printed={"name": name},
            ),
        )
    for why, names in others.items():
        for at in range(len(names)):
            left_out.add(f"{why}: {', '.join(names)}", at)


def _rates(matrix: list[Any]) -> dict[tuple[int, int], float]:
    """Return the rates of the pairs in the last matrix of a test, in GB/s."""
    size = len(as_list(matrix[-1])) if matrix else 0
    cells = [
        (row, column, number(cell))
        for row, line in enumerate(matrix[-size:])
        for column, cell in enumerate(as_list(line))
    ]
    return {(row, column): rate for row, column, rate in cells if rate and rate > 0}


FORMAT = Format(NAME, "JSON of nvbandwidth, -j", recognises, read, order=1)
