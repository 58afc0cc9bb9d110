"""`make gallery`: docs/gallery.md with a picture of every kind, drawn by collbench's own commands from committed runs.

Each picture knows the run files that it was drawn from (by their hash, in the PNG), so a test says which is out of
date.  Nothing is measured.
"""

import hashlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from PIL import Image, PngImagePlugin

from tools import ROOT

PAGE, FOLDER = ROOT / "docs" / "gallery.md", ROOT / "docs" / "gallery"
SOURCE = "collbench-source"  # the key of the hash in a PNG


class Shown(NamedTuple):
    """A picture of the page: of which kind or view, what it teaches, and the command that draws it."""

    shows: str  # a name of figures.kinds or figures.views, or the module of a picture that has its own command
    file: str  # that the command leaves in its folder
    title: str
    words: str
    command: str  # after `collbench`; `{out}` is where the picture goes

    @property
    def name(self) -> str:
        """Of the committed picture."""
        return f"{self.title.lower().replace(' ', '-')}.png"

    @property
    def runs(self) -> list[Path]:
        """The committed run files that it is drawn from."""
        folders = [ROOT / word for word in self.command.split() if word.startswith("results/")]
        return [path for folder in folders for path in sorted(folder.rglob("run.jsonl"))]

    @property
    def source(self) -> str:
        """A hash of the command and of the run files."""
        digest = hashlib.sha256(self.command.encode())
        for path in self.runs:
            digest.update(path.read_bytes())
        return digest.hexdigest()


CPU, PLAN = "results/cpu-2-ranks", "results/dgx-a100-train"
H100, PCIE = "results/dgx-h100-narrow", "results/pcie4-4090-p2p-narrow"
SLOWED = "results/cpu-ab-slowed-ring"
GPU = "results/nvidia-h100-1-gpu-4-ranks-later"
LADDER = "ring-host,ring-events,ring-flags,ring-pipelined,ring-ll,one-shot,one-shot-ll,two-shot"


def _plot(shows: str, file: str, title: str, words: str, rest: str) -> Shown:
    return Shown(shows, f"{file}.png", title, words, f"plot {rest} -o {{out}}")


PICTURES = (
    _plot(
        "bandwidth",
        "bandwidth",
        "Bandwidth",
        "What `collbench sweep` draws. Both axes are logarithmic, so that a message of 8 bytes is seen as well as one "
        "of 128 MiB; the speed-up over the library stands beside it. The dotted line is a copy in memory, measured in "
        "the same run. Diamonds are on what `auto` picked. Seven lines have a colour.",
        f"{CPU} --view bandwidth",
    ),
    _plot(
        "bandwidth",
        "bandwidth",
        "All lines on a linear axis",
        "`--linear` for how far apart the plateaus are, `--lines all` for a colour each.",
        f"{CPU} --view bandwidth --linear --lines all",
    ),
    _plot(
        "latency",
        "latency",
        "Latency",
        "Seconds of an operation; the bound is below the curves.",
        f"{CPU} --view latency",
    ),
    _plot(
        "ratio",
        "ratio",
        "Speed-up over the library",
        "Above 1 is faster. The band is wide rather than narrow. A panel for each machine, here two cores and one H100 "
        "that 4 ranks share, where NCCL runs without NVLS, without clusters and with 32 CTAs a rank.",
        f"{CPU} {GPU} --view ratio --lines all --impl mpi,nccl,{LADDER}",
    ),
    _plot(
        "bound",
        "bound",
        "Share of the bound",
        "How near each comes to what the line rate allows. Predicted, here.",
        f"{H100} --view bound",
    ),
    _plot(
        "samples",
        "samples",
        "Samples",
        "Every sample over the median of its row, in the order in which they were taken, from above; the bar is the "
        "interval of the median. Noise, drift and rows with two humps are seen here.",
        f"{CPU} --view samples --impl mpi,ring-flags,ring-ll,two-shot",
    ),
    _plot(
        "curves",
        "overlay-bandwidth",
        "Two interconnects in one panel",
        "A colour is a topology, a marker an implementation.",
        f"{H100} {PCIE} --overlay --impl nccl,two-shot --view bandwidth",
    ),
    _plot(
        "curves",
        "bandwidth",
        "For a slide",
        "`--style slide`: 16:9, large letters.",
        f"{CPU} --style slide --impl mpi,ring-flags,two-shot --view bandwidth",
    ),
    _plot(
        "curves",
        "latency",
        "For a paper",
        "`--style paper`: a column wide, no title, the legend below.",
        f"{CPU} --style paper --impl mpi,ring-flags,two-shot --view latency",
    ),
    _plot(
        "timeline",
        "timeline-allreduce-float-sum-8B-ring-flags",
        "Timeline of a small operation",
        "Of `collbench explain`: what each rank did when, piece by piece.",
        f"{CPU}-explained --impl ring-flags",
    ),
    _plot(
        "timeline",
        "timeline-allreduce-float-sum-134217728B-ring-flags",
        "Timeline of a large operation",
        "Of 640 hops: shares of time above, and below a stretch of them one by one.",
        f"{CPU}-explained --impl ring-flags",
    ),
    _plot(
        "timeline",
        "timeline-allreduce-float-sum-16777216B-ring-pipelined",
        "Timeline of a ring on a GPU",
        "`ring-pipelined` on one H100 that 4 ranks share: the first 4 of each rank's 33 blocks, in 16 MiB.",
        "results/nvidia-h100-1-gpu-4-ranks-explained --impl ring-pipelined",
    ),
    _plot(
        "timeline",
        "shares-allreduce-float-sum-134217728B",
        "Where the time goes",
        "Bars as long as their time, and the same in per cent.",
        f"{CPU}-explained",
    ),
    _plot(
        "scaling",
        "scaling",
        "Scaling",
        "Of `collbench step scale`: efficiency against ranks.",
        "results/cpu-4-ranks-scale",
    ),
    _plot(
        "overlap",
        "buckets-mpi",
        "Overlap",
        "Of `collbench step overlap`: how long a step takes with buckets of each size.",
        "results/cpu-2-ranks-overlap",
    ),
    _plot(
        "lateness",
        "lateness-allreduce-float-65536B-auto",
        "Lateness",
        "Of `collbench step stragglers`: who was late when, who was last, how long steps took. Rank 1 was slowed.",
        "results/cpu-2-ranks-jitter-slow",
    ),
    _plot(
        "losses",
        "losses",
        "A race of styles",
        "Of `collbench step strategies`: loss against time and against steps.",
        "results/cpu-2-ranks-styles",
    ),
    _plot(
        "wires",
        "wires-allreduce-float-sum",
        "Narrow wires",
        "Time saved over the error that each introduces.",
        "results/cpu-2-ranks-narrow",
    ),
    _plot(
        "layouts",
        "layouts",
        "Layouts of a training run",
        "Of `collbench train`: where the time of a planned step goes.",
        PLAN,
    ),
    _plot(
        "efficiency", "efficiency", "Efficiency of a training run", "Tokens of a GPU and second, against GPUs.", PLAN
    ),
    Shown(
        "ratios",
        "ratios.png",
        "A comparison",
        "Of `collbench compare`: time of NEW over BASE, with intervals.",
        f"compare {SLOWED}/as-is {SLOWED}/COLLBENCH_KERNELS=my-kernels -o {{out}}/ratios.png",
    ),
    Shown(
        "system",
        "fabric.png",
        "A fabric",
        "Of `collbench topo`: network cards meet CPUs or PCIe switches, and each has its own way up.",
        "topo dgx-h100 --nodes 64 -o {out}/fabric.png",
    ),
)


def drawn(command: str) -> dict[str, bytes]:
    """The committed form of all pictures that one command draws, by their names there."""
    with tempfile.TemporaryDirectory() as folder:
        words = command.format(out=folder).split()
        variables = dict(os.environ, PYTHONPATH=str(ROOT))
        done = subprocess.run(
            [sys.executable, "-P", "-m", "collbench", *words], cwd=ROOT, env=variables, capture_output=True, text=True
        )
        found = {}
        for shown in (one for one in PICTURES if one.command == command):
            if not Path(folder, shown.file).exists():
                raise SystemExit(f"collbench {command}: left no {shown.file}: {done.stderr}")
            found[shown.name] = _signed(Path(folder, shown.file), shown.source)
    return found


def _signed(path: Path, source: str) -> bytes:
    """As it was drawn, with its source in it."""
    said = PngImagePlugin.PngInfo()
    said.add_text(SOURCE, source)
    file = io.BytesIO()
    with Image.open(path) as picture:
        picture.save(file, "png", optimize=True, pnginfo=said)
    return file.getvalue()


def page(pictures: Sequence[Shown] = PICTURES) -> str:
    """The whole of docs/gallery.md."""
    return "\n".join(_lines(pictures)) + "\n"


def _lines(pictures: Sequence[Shown]) -> Iterator[str]:
    yield "# Gallery"
    yield ""
    yield "Every kind of picture, each below the command that draws it from a run in this repository."
    yield "`make gallery` draws them and writes this page; [figures](figures.md) has the options."
    for shown in pictures:
        command = shown.command.format(out="figures").replace(" -o figures/", " -o ")
        yield from ("", f"## {shown.title}", "", shown.words, "", f"    collbench {command}", "")
        yield f"![{shown.title}](gallery/{shown.name})"


def main() -> None:
    """Draw all of them, and write the page; pictures that are no longer shown are removed."""
    FOLDER.mkdir(exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(drawn, dict.fromkeys(shown.command for shown in PICTURES)):
            for name, content in found.items():
                (FOLDER / name).write_bytes(content)
                print(f"{FOLDER / name}: {len(content) // 1024} kB", flush=True)
    for path in FOLDER.iterdir():
        if path.name not in {shown.name for shown in PICTURES}:
            path.unlink()
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
