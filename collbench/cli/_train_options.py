"""From the words of `collbench train` to a setting: the model, the system or the run, and what is known."""

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from collbench.api.requests import find_system
from collbench.errors import UsageError
from collbench.planner.anchor import anchored, parse_anchor
from collbench.planner.curves import Modelled
from collbench.planner.job import MOST_GPUS, Job
from collbench.planner.layout import Said, parse_layout
from collbench.planner.machine import machine_of
from collbench.planner.machine import said as with_said
from collbench.planner.model_files import load_model, parse_count
from collbench.planner.models import with_sequence
from collbench.planner.planner import Planned
from collbench.planner.setting import Setting
from collbench.runfile.file import NAME, Run, read
from collbench.topology.system import System

GPUS = 64  # of a described system, by default
MOST_COUNTS = 64  # of numbers of GPUs


class Question(NamedTuple):
    """What is asked: the setting, what is said of the layout, and what the anchor was read of."""

    setting: Setting
    said: Said
    anchor: Planned | None


def question(options: Mapping[str, Any]) -> Question:
    """UsageError, with a way out, for what cannot be asked."""
    model = load_model(options["model"])
    if options["sequence"] is not None:
        model = with_sequence(model, options["sequence"])
    said = parse_layout(options["layout"]) if options["layout"] else {}
    run = read(Path(options["on"])) if _is_run(options["on"]) else None
    gpus = options["gpus"] if options["gpus"] is not None else run.header.topology.ranks if run else GPUS
    if not 1 <= gpus <= MOST_GPUS:
        raise UsageError(f"--gpus {gpus} is impossible; give 1 to {MOST_GPUS}")
    names = ("precision", "optimiser", "gradients")
    how = {name: options[name] for name in names} | {
        "reserve": _share(options, "reserve"),
        "noise": _share(options, "noise"),
    }

    def job(stack: str) -> Job:
        whole = Job(model, gpus, options["batch"], model.sequence, stack=options["stack"] or stack, **how)
        return whole.checked()

    setting = _of_run(run, job, options) if run else _described(gpus, job, options)
    if options["anchor"]:
        setting, layout = anchored(setting, parse_anchor(options["anchor"]), said)
        return Question(setting, said, layout)
    return Question(setting, said, None)


def _share(options: Mapping[str, Any], name: str) -> float:
    value = float(options[name])
    if not 0 <= value < 100:
        raise UsageError(f"--{name} {value:g} is no share; give per cent from 0 to less than 100")
    return value / 100


def _described(gpus: int, job: Callable[[str], Job], options: Mapping[str, Any]) -> Setting:
    """On a described system, by the model's curves."""
    if options["fitted"]:
        raise UsageError(f"--fitted is of a run's curves; {options['on']} is described, and has those of the model")
    system = find_system(options["on"])
    curves = Modelled(system, gpus)
    machine = with_said(machine_of(curves.system), options["tflops"], options["memory"])
    return Setting(job(machine.stack), curves, machine, _loader(options))


def _of_run(run: Run, job: Callable[[str], Job], options: Mapping[str, Any]) -> Setting:
    from collbench.planner.of_run import setting_of

    return setting_of(run, job, options, _loader(options))


def _loader(options: Mapping[str, Any]) -> float:
    rate = options["loader"]
    if rate is not None and not 0 < rate < inf:
        raise UsageError(f"--loader {rate:g} is no rate; give samples a second, above 0")
    return rate or inf


def _is_run(on: str) -> bool:
    path = Path(on)
    return not on.endswith(".toml") and (path.suffix == ".jsonl" or (path / NAME).exists())


def parse_counts(text: str) -> list[int]:
    """`8..8192` doubles, `64,96,128` lists; UsageError for anything else."""
    doubled = []
    for word in text.split(","):
        match = re.fullmatch(r"\s*([1-9]\d{0,6})(?:\.\.([1-9]\d{0,6}))?\s*", word)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise UsageError(f"--scale {text!r} is no list of GPUs; write 8..8192, which doubles, or 64,96,128")
        count, last = int(match[1]), int(match[2] or match[1])
        while count <= last:
            doubled.append(count)
            count *= 2
    counts = sorted(set(doubled))
    if len(counts) > MOST_COUNTS or counts[-1] > MOST_GPUS:
        raise UsageError(f"--scale {text!r} is too much; give at most {MOST_COUNTS} numbers, up to {MOST_GPUS} GPUs")
    return counts


def parse_systems(text: str) -> list[System]:
    """Of `--compare-interconnects`: names and files, after commas."""
    return [find_system(name.strip()) for name in text.split(",")]


def parse_priced(words: Sequence[str]) -> list[tuple[System, float]]:
    """Of `--up-or-out`: `SYSTEM=PRICE`; UsageError without one."""
    priced = []
    for word in words:
        name, _, price = word.partition("=")
        if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", price) or not float(price):
            raise UsageError(f"--up-or-out {word!r} has no price; write SYSTEM=PRICE, such as dgx-h100=2.5")
        priced.append((find_system(name.strip()), float(price)))
    return priced


def parse_tokens(text: str) -> float:
    """Of the whole run."""
    count = parse_count(text, "--tokens")
    if not 1 <= count <= 1e18:
        raise UsageError(f"--tokens {text} is impossible; give 1 to 1e18, such as 300B")
    return count
