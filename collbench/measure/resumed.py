"""Resuming a run: lines to keep, cases to measure, same machine.

A row stays unless it is `failed`, or `skipped` because its implementation failed earlier in the run. Unreadable lines
and the end line are removed.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Self

from collbench.algorithms import apart
from collbench.cases import Case, Sampling, Sweep, Work
from collbench.errors import RunFileError, UsageError
from collbench.host import sanitize
from collbench.platforms.cpu.mpi_libraries import short_name
from collbench.records import encoded
from collbench.results import Failed, Result, Skipped
from collbench.runfile.schema import Header, to_line, to_result, unknown_names, upgraded
from collbench.runfile.store import FORMAT, INTERRUPTED, parse_header
from collbench.units import counted

ANEW = "measure anew, without --resume"


def tasks(sweep: Sweep, existing: Sequence[Result] = ()) -> Iterator[tuple[Case, tuple[str, ...], Sampling]]:
    """Yield a sweep's cases with the implementations without a row, each with its share of the budget."""
    done = {(result.case, result.implementation) for result in existing if not _goes_on(result.case.work)}
    for case in sweep.cases():
        if names := tuple(name for name in sweep.implementations if (case, name) not in done):
            share = len(names) / len(sweep.implementations)
            yield case, names, replace(sweep.sampling, budget=sweep.sampling.budget * share)


@dataclass(frozen=True)
class ResumedRun:
    """The remaining part of a run."""

    path: Path
    header: Header
    sweep: Sweep
    lines: tuple[bytes, ...]  # behind the header
    results: tuple[Result, ...]  # in these lines
    ended: bool  # whether the run ended, and not by a signal

    @classmethod
    def of(cls, path: Path, content: bytes) -> Self:
        """Return the remaining part of a run file, given its content.

        RunFileError if it is not a run file; UsageError if it has no sweep that can be resumed.
        """
        lines = ((number, line) for number, line in enumerate(io.BytesIO(content), 1) if line.strip())
        header, version = parse_header(path, lines)
        if unknown := unknown_names(sanitize.parse_object(content.lstrip().partition(b"\n")[0]).get("sweep")):
            names = ", ".join(chain.from_iterable(unknown.values()))
            raise RunFileError(f"{path}: {names} is unknown to this release; resume with the release that wrote it")
        sweep = _sweep(path, header)
        rows: list[tuple[bytes, Result | None]] = []
        status: object = None
        for _, line in lines:
            try:
                fields = sanitize.parse_object(line)
                row = to_result(upgraded(fields) if version < FORMAT else fields)
            except ValueError:  # truncated, or not a result
                continue
            if fields.get("kind") == "end":
                status = fields.get("status")
                continue

            # An end counts only if nothing follows it.
            status = None
            written = encoded(to_line(row)) if row and version < FORMAT else line.rstrip(b"\n") + b"\n"
            rows.append((written, row))

        # Measure a failed case again, and the cases skipped because of it.
        failed = {row.implementation for _, row in rows if isinstance(row, Failed)}
        retained, results = [], []
        for written, row in rows:
            if isinstance(row, Failed | Skipped) and row.implementation in failed:
                continue
            retained.append(written)
            if row:
                results.append(row)
        ended = type(status) is int and status < INTERRUPTED
        sweep = replace(sweep, works=tuple(work and work.resumed(results) for work in sweep.works))
        return cls(path, header, sweep, tuple(retained), tuple(results), ended)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return self.ended and not any(tasks(self.sweep, self.results))

    def refuse_other(self, now: Header) -> None:
        """Raise UsageError with the differences if the ranks of this header are unlike the earlier ones."""
        before, here = _facts(self.header), _facts(now)
        for name in before | here:
            then, today = before.get(name, f"no {name}"), here.get(name, f"no {name}")
            if then != today:
                raise UsageError(f"{self.path} was measured with {then}, here is {today}; {ANEW}")


def _sweep(path: Path, header: Header) -> Sweep:
    reason = ""
    if header.imported.tool:
        reason = f"was imported from {header.imported.tool}"
    elif header.topology.model:
        reason = "was predicted"
    elif header.interleaved.id:
        reason = "is one of two settings that were measured in turn (--ab)"
    elif any(apart(name)[1] for name in header.sweep.implementations):
        reason = "compares MPI or NCCL libraries (--mpi, --nccl)"
    if reason:
        raise UsageError(f"{path} {reason}, which cannot be resumed; {ANEW}")
    sweep, how = header.sweep, header.sweep.sampling
    if not (sweep.collectives and sweep.sizes and sweep.dtypes and sweep.ranks and sweep.implementations):
        raise RunFileError(f"{path}: its header has no whole sweep; {ANEW}")
    if how.traced or how.check_only or any(work and not _goes_on(work) for work in sweep.works):
        raise UsageError(f"{path} is not of collbench sweep or scan, whose runs can be resumed; run its command again")
    return sweep


def _goes_on(work: Work | None) -> bool:
    return bool(work and work.resumable)


def _facts(header: Header) -> dict[str, str]:
    """Return the facts that must agree, in words by name: machine, ranks, topology, versions and variables."""
    environment, topology = header.environment, header.topology
    facts = {
        "host": f"host {environment.host}",
        "system": environment.system,
        "platform": f"platform {topology.platform}",
        "ranks": counted(topology.ranks, "rank"),
        "launcher": f"{header.processes} processes of a launcher" if header.processes else "ranks started by collbench",
        "topology": topology.name,
        "places": f"ranks on devices {', '.join(map(str, topology.places))}" if topology.places else "ranks dealt",
    }
    devices = [f"{device.name} {device.bus_id} {device.host}".strip() for device in topology.devices]
    facts |= {f"device {number}": device for number, device in enumerate(devices)}
    for name, version in environment.versions.items():
        facts[name] = short_name(version) if name == "mpi" else f"{name} {version}"
    return facts | {name: f"{name}={value}" for name, value in environment.variables.items()}
