"""The JSON of nccl-tests and rccl-tests (-J), versions 1 to 4.

It may contain bare inf and nan, and is incomplete if the program was stopped; both are repaired before parsing.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from collbench.commands.formats.command_lines import NOT_HERE
from collbench.commands.formats.foreign_machine import Device, dotted_version, machine_of, require_ranks
from collbench.commands.formats.foreign_row import ForeignRow, known_collective, row_of
from collbench.commands.formats.imported import Hints, ImportedTest, LeftOut, make_test
from collbench.commands.formats.importing import Format
from collbench.commands.formats.nccl_tests_text import AMD, AVERAGES
from collbench.commands.formats.nccl_tests_write import JSON as NAME
from collbench.commands.formats.nccl_tests_write import PLACES, SETTINGS, write_json
from collbench.commands.formats.source import ForeignFile
from collbench.commands.formats.words import as_list, as_mapping, as_texts, clean, seconds_of, whole
from collbench.errors import RunFileError, UsageError
from collbench.properties import NCCL_TESTS

FIGURES = {"time": "time", "cpu_time": "cputime", "alg_bw": "algbw", "bus_bw": "busbw", "nwrong": "#wrong"}
"""The table's names of the figures of a place."""
STRING = r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
"""A string; an unclosed one extends to the end, so that matching takes linear time."""
WORDS = re.compile(STRING + r"|-?\b(?:inf(?:inity)?|nan)\b", re.DOTALL | re.IGNORECASE)
MOST_TORN = 8  # objects inside an incomplete row


def recognises(source: ForeignFile) -> bool:
    """Whether a file begins with an object of nccl-tests."""
    text = source.head.lstrip()
    return text.startswith("{") and any(f'"{key}"' in text for key in ("nccl_version", "out_of_place", "alg_bw"))


def parse(source: ForeignFile) -> tuple[Mapping[str, Any], bool, list[str]]:
    """Return a file's object up to its last complete result, whether it is complete, and its incomplete row."""
    # Replace bare inf and nan by NaN, which Python's parser knows.
    text = WORDS.sub(lambda match: match[0] if match[0][0] == '"' else "NaN", source.document)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        whole_part, torn = _before_tear(text)
        if not whole_part:
            raise RunFileError(f"{source.name}:{error.lineno}: not JSON: {error.msg}") from None
        return whole_part, False, torn
    except (ValueError, RecursionError):
        raise RunFileError(f"{source.name}: its JSON has too long numbers or is too deeply nested") from None
    if not isinstance(value, dict):
        raise RunFileError(f"{source.name}:1: not a JSON object")
    return value, True, []


def _before_tear(text: str) -> tuple[Mapping[str, Any], list[str]]:
    """Return an incomplete file's object up to its last complete result, and a message on the incomplete row."""
    ends = [match.end() for match in re.finditer(r"\}", text)]
    for end in reversed(ends[-MOST_TORN:]):
        try:
            value = as_mapping(json.loads(text[:end] + "]}"))
        except (ValueError, RecursionError):
            continue
        rest = text[end:].lstrip(", \t\r\n")
        if not rest.startswith("{"):
            return value, []
        line = text.count("\n", 0, len(text) - len(rest)) + 1
        return value, [f"line {line} begins a row that is cut ({clean(rest, 40)!r})"]
    return {}, []


def read(source: ForeignFile, hints: Hints) -> Iterator[ImportedTest]:
    """Read the one test of a file."""
    fields, is_whole, torn = parse(source)
    config = as_mapping(fields.get("config"))
    writer = as_mapping(fields.get("collbench"))  # present if collbench wrote the file
    args, entries = as_texts(fields.get("args")), as_list(fields.get("results"))
    options = dict(pairwise(args))  # each word with the next one
    if not entries:
        raise RunFileError(f"{source.name}: a JSON file of nccl-tests without results")
    word = PurePath((args or [""])[0]).name
    if not known_collective(word) and not NOT_HERE.search(word):
        word = hints.collective or word
    if not word:
        raise UsageError(f"{source.name} does not name its collective; give --op NAME")
    devices = [as_mapping(device) for device in as_list(config.get("devices"))]
    amd = any(AMD.search(clean(device.get("device_info"))) for device in devices)
    library = "rccl" if amd or "rccl" in " ".join(args[:1]) else "nccl"
    left_out = LeftOut(torn)

    # The list of devices may be too short: a process may list only one.
    processes = len({(str(device.get("hostname")), str(device.get("pid"))) for device in devices})
    threads, gpus = (whole(config.get(key)) or 0 for key in ("nthreads", "ngpus"))
    count = whole(writer.get("ranks")) or max(processes * threads * gpus, hints.ranks or 0) or None
    ranks = require_ranks(source.name, count, "it does not tell the number of ranks")
    platform = clean(writer.get("platform") or "gpu", 16)
    code = whole(fields.get("nccl_version") or fields.get("rccl_version")) or 0
    settings = [setting.partition("=") for setting in as_texts(fields.get("env"))]
    environment = {name: value for name, _, value in settings}
    versions = {library: dotted_version(code)}

    # An entry of the list is a process, or in some versions a rank.
    each = max(1, threads) * max(1, gpus)
    if len(devices) * each > ranks:
        each = 1
    machine = machine_of([_device(entry, each) for entry in devices] * each, ranks, platform, versions, environment)
    is_complete = is_whole and "end_time" in fields
    remarks = [f"it says: {clean(error)}" for error in as_list(fields.get("errors"))]
    if not is_complete:
        remarks.insert(0, f"incomplete: no footer after row {len(entries)}")
    sweep = {name: whole(config.get(key)) for key, name in SETTINGS.items()}
    values = {each: options.get(f"-{each.letter}") or options.get(f"--{each.name}") for each in NCCL_TESTS}
    properties = {each.name: whole(value) or each.usual for each, value in values.items()}
    iterations = whole(as_mapping(entries[0]).get("actual_iterations") or config.get("iterations"))
    average = AVERAGES.get(options.get("-a") or options.get("--average") or "1", "mean over ranks")
    yield make_test(
        source.name,
        _rows(entries, config, {"collective": word, "properties": properties}, left_out),
        machine,
        left_out,
        implementation=clean(writer.get("implementation") or library, 40),
        statistic=f"mean of {iterations or 'some'} operations, {average}",
        tool=f"{library}-tests",
        version=f"JSON {clean(fields.get('version'), 8)}",
        complete=is_complete,
        started=clean(fields.get("start_time") or "", 32).replace(" ", "T") or None,
        sweep={name: value for name, value in sweep.items() if value is not None},
        remarks=tuple(remarks),
    )


def _device(entry: Mapping[str, Any], ranks: int) -> Device:
    host, name = clean(entry.get("hostname") or "", 64), clean(entry.get("device_info") or "", 64)
    bus_id = clean(entry.get("device_hex") or "", 16).lower() if ranks == 1 else ""  # belongs to the first rank
    return Device(whole(entry.get("rank")) or 0, host, name, 0, whole(entry.get("device")) or 0, bus_id)


def _rows(
    entries: list[Any], config: Mapping[str, Any], same: Mapping[str, Any], left_out: LeftOut
) -> Iterator[ForeignRow]:
    """Yield the places with values of all entries, at least one of each entry."""
    together = whole(config.get("aggregated_iterations")) or 1
    aggregated = f"{together} operations aggregated in a group (-m)" if together > 1 else ""
    for at, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            left_out.add("it is not a JSON object", at)
            continue
        for place in [place for place in PLACES if isinstance(entry.get(place), Mapping)] or PLACES[:1]:
            figures = as_mapping(entry.get(place))
            words = {**entry, **{FIGURES[name]: figure for name, figure in figures.items() if name in FIGURES}}
            each = as_mapping(entry.get(f"{place}_per_iter"))
            skipped = whole(each.get("skipped_iterations")) or 0  # -K: not part of any statistic
            samples = tuple(map(seconds_of, as_list(each.get("times_us"))[skipped:]))
            if not all(samples):
                samples = ()
            yield row_of(words, number=at, in_place=place == PLACES[1], samples=samples, note=aggregated, **same)


FORMAT = Format(NAME, recognises, read, write_json, order=0)
