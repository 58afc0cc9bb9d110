"""Implementations declared by `mine.toml` next to `mine.cu` (docs/kernels.md has the keys)."""

import re
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from collbench.algorithms import Implementation
from collbench.cases import PACK, Case
from collbench.collectives import COLLECTIVES, chunk_elements
from collbench.errors import Unsupported, UsageError
from collbench.host.sanitize import read_toml
from collbench.platforms import compiler
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import LINE

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_ORDER = 100  # behind all others in lists


class KernelRecord(Struct, forbid_unknown_fields=True):
    """A record's fields about the kernel next to it."""

    collectives: Annotated[tuple[str, ...], Meta(min_length=1)]
    summary: str = ""
    arguments: tuple[Literal["count", "chunk", "root", "fifo"], ...] = ("count",)  # behind the world, in this order
    fifo: Annotated[int, Meta(ge=0, le=2**30)] = 0  # bytes in each window
    in_place: bool = True
    blocks: Annotated[int, Meta(ge=1, le=64)] = 64  # of a rank on a GPU with room for them, and threads of each
    threads: Annotated[int, Meta(ge=32, le=512)] = 512


def recorded(taken: Collection[str]) -> Iterator[Implementation]:
    """Yield an implementation for each record; UsageError for a record that is wrong or has a name that is taken."""
    for name, path in files().items():
        if not _NAME.fullmatch(name) or name in taken:
            wrong = "there is an implementation of that name" if name in taken else "no name for an implementation"
            raise UsageError(f"{path}: {wrong}; give both files another, of letters, digits, - and _")
        record = read(path)
        yield Implementation(
            name=name,
            summary=record.summary or str(path.with_suffix(".cu")),
            collectives=record.collectives,
            prepare=partial(_prepare, name, record),
            supports=partial(_supports, record),
            order=_ORDER,
            fifo=partial(_fifo, record),
        )


def files() -> dict[str, Path]:
    """Return the files of all records by name; one in the folder on trial takes the place of the package's."""
    folders = dict.fromkeys((compiler.folder(), compiler.own_folder()))
    return {path.stem: path for folder in reversed(folders) for path in sorted(folder.glob("*.toml"))}


def entry(name: str, record: KernelRecord, collective: str) -> str:
    """Return a kernel's name: that of the record, followed by the collective if the record has several."""
    return "_".join([name.replace("-", "_"), *[collective][: len(record.collectives) > 1]])


def lacking(word: str) -> str:
    """Return what a kernel of that name lacks to be an implementation; "" where there is no such kernel."""
    kernels, name = compiler.folder(), Path(word).name.removesuffix(".cu")
    for folder in (kernels, Path(word).parent):
        file, record = folder / f"{name}.cu", folder / f"{name}.toml"
        if file.is_file() and not (compiler.own_folder() / file.name).exists():
            steps = []
            if not record.exists():
                steps.append(f'write {record} with the line collectives = ["allreduce"]')
            if folder != kernels:
                steps.append(f"set COLLBENCH_KERNELS={folder}")
            if steps:
                return f"{file} is no implementation yet: {', '.join(steps)} (docs/kernels.md, Kernels of your own)"
    return ""


def read(path: Path) -> KernelRecord:
    """Return the record in a file; UsageError if it is wrong."""
    try:
        record = msgspec.convert(read_toml(path, UsageError), KernelRecord)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}; the keys are {', '.join(KernelRecord.__struct_fields__)}") from None
    if unknown := [name for name in record.collectives if name not in COLLECTIVES]:
        raise UsageError(f"{path}: unknown collective {unknown[0]!r}; choose from: {', '.join(COLLECTIVES)}")
    return record


def _supports(record: KernelRecord, case: Case) -> None:
    if case.in_place and not record.in_place:
        raise Unsupported("its record says that it does not work in place")


def _fifo(record: KernelRecord, ranks: int, platform: str) -> int:
    return -(-record.fifo // LINE) * LINE


def _prepare(name: str, record: KernelRecord, case: Case, platform: Platform) -> Prepared:
    kernel = platform.launcher.kernel(f"{name}.cu", entry(name, record, case.collective.name), case.dtype, case.redop)
    values = {
        "count": np.uint64(case.block),
        "chunk": np.uint64(chunk_elements(case.block, case.ranks, case.dtype.itemsize)),
        "root": np.uint32(case.root),
        "fifo": np.uint64(platform.layout.fifos[name]),
    }
    grid = platform.launcher.grid(-(-case.nbytes // PACK), record.threads, record.blocks)
    return Prepared(platform.launcher.bind(kernel, case, *grid, *(values[word] for word in record.arguments)))
