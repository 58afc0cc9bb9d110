"""The protocols of the kernels, cut down to a few threads, and weakenings that break them: fragments.toml.

A rank is a GPU, a block a CTA.  Where a block has two threads, the first handles the flags, as thread 0 does in
kernels/flags.cuh, and the second the data, as all threads do; in "a thread for each peer" both do both.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Fragment:
    """Threads of a protocol, and the outcome that would be a bug."""

    name: str
    wrong: str
    outcome: str
    threads: tuple[str, ...]
    initially: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Weakening:
    """A change of a fragment's text, with which the bug happens."""

    name: str
    fragment: str
    changes: tuple[tuple[str, str], ...]

    def of(self, fragment: Fragment) -> Fragment:
        """Return the changed fragment; ValueError if a change does not apply."""
        text = "\n".join(fragment.threads)
        for old, new in self.changes:
            if old not in text:
                raise ValueError(f"{self.name}: {fragment.name} has no {old!r}")
            text = text.replace(old, new)
        return replace(fragment, name=self.name, threads=tuple(text.splitlines()))


def _fragment(record: dict[str, Any]) -> Fragment:
    return Fragment(**record | {"threads": tuple(record["threads"])})


def _weakening(record: dict[str, Any]) -> Weakening:
    return Weakening(**record | {"changes": tuple(map(tuple, record["changes"]))})


ON_ONE_DEVICE = "on one device: "


def on_one_device(fragment: Fragment) -> Fragment:
    """Return the fragment with all ranks on one GPU and at that GPU's scope: CTA c of rank r becomes CTA 2 r + c."""
    threads = tuple(
        re.sub(r"^(\d)\.(\d):", lambda at: f"0.{2 * int(at[1]) + int(at[2])}:", thread).replace(".sys", ".gpu")
        for thread in fragment.threads
    )
    return replace(fragment, name=ON_ONE_DEVICE + fragment.name, threads=threads)


def in_one_thread(fragment: Fragment) -> Fragment:
    """Return the fragment with one thread a block, with the work of all threads between barriers; for pictures."""
    places = dict.fromkeys(thread.partition(":")[0] for thread in fragment.threads)
    threads = []
    for place in places:
        codes = [thread.partition(":")[2] for thread in fragment.threads if thread.startswith(f"{place}:")]
        rounds = zip(*(code.split("bar.sync 0") for code in codes), strict=True)
        steps = [step.strip("; ") for parts in rounds for step in parts]
        threads.append(f"{place}: {'; '.join(filter(None, steps))}")
    return replace(fragment, threads=tuple(threads))


_RECORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FRAGMENTS = [_fragment(record) for record in _RECORDS["fragment"]]
FRAGMENTS += [
    on_one_device(fragment)
    for fragment in FRAGMENTS
    if "multimem" not in "".join(fragment.threads)  # adds between devices
]
WEAKENINGS = [_weakening(record) for record in _RECORDS["weakening"]]
WEAKENINGS += [
    Weakening(f"{fragment.name}, cta scope", fragment.name, ((".gpu", ".cta"),))
    for fragment in FRAGMENTS
    if fragment.name.startswith(ON_ONE_DEVICE)
    and not fragment.name.endswith("a slow receiver")  # its ranks only alternate
]
WEAKENINGS.append(
    Weakening("on one device: one buffer", "on one device: packets, a slow receiver", (("[even1]", "[odd1]"),))
)
