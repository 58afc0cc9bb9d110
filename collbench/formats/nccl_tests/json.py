"""The JSON that nccl-tests and rccl-tests write with -J, versions 1 to 3."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from collbench.cases import Case
from collbench.errors import RunFileError, UsageError
from collbench.formats import Format
from collbench.formats.exported import mapping, texts
from collbench.formats.imported import (
    Device,
    Hints,
    Machine,
    Rows,
    Test,
    UnfitRow,
    dotted,
    known_collective,
    machine_of,
    make_case,
    said_ranks,
)
from collbench.formats.nccl_tests.evidence import Evidence, Witness
from collbench.formats.nccl_tests.facts import AMD, AVERAGES
from collbench.formats.nccl_tests.loose_json import kept, parse
from collbench.formats.nccl_tests.ranks import RankCount, settle
from collbench.formats.nccl_tests.write_json import NAME, write
from collbench.formats.source import Source, clean, count, microseconds, number, whole
from collbench.results import Note, Reported
from collbench.runfile.environment import variables

PLACES = ("out_of_place", "in_place")
TOP = (
    *("version", "start_time", "args", "env", "nccl_version", "rccl_version", "config", "results", "out_of_bounds"),
    *("average_bus_bandwidth", "average_bus_bandwidith", "errors", "end_time", "collbench"),
)
"""The keys that are kept; anything else might be a secret."""


def recognises(source: Source) -> bool:
    """Whether it begins as such an object does."""
    text = source.text.lstrip()[:65536]
    return text.startswith("{") and any(f'"{key}"' in text for key in ("nccl_version", "out_of_place", "alg_bw"))


def read(source: Source, hints: Hints) -> list[Test]:
    """The file's one test."""
    fields, whole_file = parse(source, "results")
    return [_Log(source, fields, hints).test(whole_file)]


class _Log:
    """One file's object, whose every value may be missing or of another type."""

    def __init__(self, source: Source, fields: Mapping[str, Any], hints: Hints) -> None:
        self._source, self._fields, self._hints = source, fields, hints
        self._config = mapping(fields.get("config"))
        self._args = texts(fields.get("args"))
        entries = fields.get("results")
        if not isinstance(entries, list) or not entries:
            raise RunFileError(f"{source.name}: a JSON file of nccl-tests without results")
        self._entries: list[object] = entries
        self._name = self._named()
        self._collective = known_collective(self._name)
        self._tool = "rccl-tests" if "rccl" in " ".join(self._args[:1]) or self._amd() else "nccl-tests"
        self._library = self._tool[:4]
        self._exporter = mapping(fields.get("collbench"))  # if collbench wrote it
        self._platform = clean(self._exporter.get("platform") or "gpu", 16)

    def _amd(self) -> bool:
        devices = _list(self._config.get("devices"))
        return any(AMD.search(clean(mapping(device).get("device_info"))) for device in devices)

    def test(self, whole_file: bool) -> Test:
        rows, counted = Rows(), self._counted()
        machine = self._machine(counted)
        for at, entry in enumerate(self._entries):
            rows.add(self._results(at, entry, machine))
        complete = whole_file and "end_time" in self._fields
        remarks = () if complete else (f"incomplete: no footer, {len(self._entries)} rows",)
        errors = [f"it says: {clean(error)}" for error in _list(self._fields.get("errors"))]
        iters = {"nthreads": "threads", "ngpus": "gpus", "warmup_iters": "warmup", "iterations": "iters"}
        iters |= {"aggregated_iterations": "aggregated"}
        return Test(
            format=NAME,
            tool=self._tool,
            version=f"JSON {clean(self._fields.get('version'), 8)}",
            file=self._source.file,
            machine=machine,
            results=tuple(rows.results),
            complete=complete,
            started=clean(self._fields.get("start_time") or "", 32).replace(" ", "T") or None,
            sweep={
                name: setting for key, name in iters.items() if (setting := whole(self._config.get(key))) is not None
            },
            layout={"keys": [key for key in self._fields if key in TOP], "values": self._values()},
            left_out=rows.left_out,
            remarks=(*remarks, *errors, *filter(None, [counted.why])),
        )

    def _named(self) -> str:
        """The program: the file has no other word for it."""
        stem = re.search(r"[a-z][a-z_]{2,40}_perf", PurePath(self._source.name).name.lower())
        name = self._hints.collective or (self._args[0] if self._args else "") or (stem[0] if stem else "")
        if not name:
            raise UsageError(f"{self._source.name} does not say which collective it is of; give --op NAME")
        return PurePath(name).name

    def _values(self) -> dict[str, Any]:
        values = {key: self._fields[key] for key in self._fields if key in TOP and key not in ("results", "env")}
        try:
            record: dict[str, Any] = kept(values)
        except UnfitRow:
            raise RunFileError(f"{self._source.name}: its JSON is nested too deeply") from None
        return record | (
            {"env": [f"{name}={value}" for name, value in self._variables]} if "env" in self._fields else {}
        )

    @property
    def _variables(self) -> list[tuple[str, str]]:
        pairs = (setting.partition("=") for setting in texts(self._fields.get("env")))
        return list(variables({name: value for name, _, value in pairs}).items())

    def _machine(self, counted: RankCount) -> Machine:
        devices = [_device(device) for device in _list(self._config.get("devices")) if isinstance(device, Mapping)]
        name = self._source.name
        ranks = said_ranks(Hints(), counted.ranks, name, counted.why)
        kinds = list(dict.fromkeys(device.name for device in devices))
        code = whole(self._fields.get("nccl_version") or self._fields.get("rccl_version"))
        versions = {self._library: dotted(code or 0)}
        hosts = list(dict.fromkeys(device.host for device in devices)) or [""]
        if len(kinds) == 1:
            devices = [Device(rank, hosts[rank * len(hosts) // ranks], kinds[0]) for rank in range(ranks)]
        machine = machine_of(devices, ranks, versions, dict(self._variables))
        return replace(machine, platform=self._platform)

    def _counted(self) -> RankCount:
        """The number of ranks; the devices that are listed may be one for each process only."""
        if ranks := whole(self._exporter.get("ranks")):
            return RankCount(self._hints.ranks or ranks)
        devices = [mapping(device) for device in _list(self._config.get("devices"))]
        processes = len({(str(device.get("hostname")), str(device.get("pid"))) for device in devices})
        product = (whole(self._config.get("nthreads")) or 0) * (whole(self._config.get("ngpus")) or 0) * processes
        if not self._collective:
            return RankCount(self._hints.ranks or product or None, "it does not tell the number of ranks")
        offers = [product] if product else []
        return settle(self._collective, self._evidence(), offers, None, self._hints.ranks)

    def _evidence(self) -> Evidence:
        """What the entries tell."""
        entries = [mapping(entry) for entry in self._entries]
        witnesses = [
            Witness(
                whole(entry.get("size")) or 0,
                whole(entry.get("count")),
                str(entry.get("type")).strip(),
                (_decimal(figures.get("time")), 1e-6),
                _decimal(figures.get("alg_bw")),
                _decimal(figures.get("bus_bw")),
            )
            for entry in entries
            for figures in map(mapping, map(entry.get, PLACES))
        ]
        return Evidence(witnesses, timed=not any("cpu_time" in mapping(entry.get(PLACES[0])) for entry in entries))

    def _results(self, at: int, entry: object, machine: Machine) -> Iterator[Reported]:
        """Of the entry's places those that have a value; at least one."""
        if not isinstance(entry, Mapping):
            raise UnfitRow("it is no JSON object")
        if not self._collective:
            raise UnfitRow(f"collbench has no collective like {clean(self._name, 40)}")
        size = whole(entry.get("size"))
        if size is None:
            raise UnfitRow("its size is no whole number")
        common = {key: value for key, value in entry.items() if not key.startswith(PLACES)}
        told = [place for place in PLACES if isinstance(entry.get(place), Mapping)] or [PLACES[0]]
        rest = {
            key: value for key, value in entry.items() if key.startswith(PLACES) and not key.startswith(tuple(told))
        }
        root, dtype = _root(entry.get("root")), str(entry.get("type")).strip()
        redop = str(entry.get("redop") or "sum").strip()
        for place in told:
            in_place = place == PLACES[1]
            case = make_case(self._collective, size, dtype, redop, root, machine.ranks, in_place)
            own = common | {key: value for key, value in entry.items() if key.startswith(place)}
            own |= rest if place == told[0] else {}
            yield self._reported(case, own, place, {"row": at, "keys": list(entry), "entry": kept(own)})

    def _reported(self, case: Case, own: Mapping[str, Any], place: str, printed: Mapping[str, Any]) -> Reported:
        figures = mapping(own.get(place))
        on_cpu = "cpu_time" in figures
        together = whole(self._config.get("aggregated_iterations")) or 1
        notes = [f"{together} operations aggregated in a group (-m)" if together > 1 else ""]
        notes += ["CPU time of the call (-C)" if on_cpu else ""]
        return Reported(
            case,
            clean(self._exporter.get("implementation") or self._library, 40),
            self._platform,
            seconds=microseconds(figures.get("cpu_time" if on_cpu else "time")),
            statistic=self._statistic(own),
            wrong_elements=count(figures.get("nwrong")),
            samples=_samples(mapping(own.get(f"{place}_per_iter")).get("times_us")),
            printed=printed,
            note=Note.of(", ".join(filter(None, notes))),
        )

    def _statistic(self, entry: Mapping[str, Any]) -> str:
        how_many = whole(entry.get("actual_iterations")) or whole(self._config.get("iterations")) or "some"
        given = [self._args[at + 1] for at, word in enumerate(self._args[:-1]) if word in ("-a", "--average")]
        return f"mean of {how_many} operations, {AVERAGES.get(whole(given[-1]) if given else 1, 'mean over ranks')}"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _decimal(value: object) -> str:
    """As it was printed, with six decimals."""
    printed = number(value)
    return f"{printed:.6f}" if printed is not None and abs(printed) < 1e15 else ""


def _root(value: object) -> int:
    """From a string padded with blanks; -1, which means that there is none, is 0."""
    root = number(str(value).strip())
    return max(0, int(root)) if root is not None else 0


def _samples(values: object) -> tuple[float, ...]:
    """Seconds of single operations; none if any of them is no time."""
    samples = tuple(microseconds(sample) for sample in _list(values))
    return samples if all(samples) else ()


def _device(fields: Mapping[str, Any]) -> Device:
    host, name = clean(fields.get("hostname") or "", 64), clean(fields.get("device_info") or "", 64)
    return Device(whole(fields.get("rank")) or 0, host, name, pid=whole(fields.get("pid")) or 0)


FORMAT = Format(NAME, "JSON of nccl-tests and rccl-tests, -J", recognises, read, write, order=0)
