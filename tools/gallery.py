"""`make gallery`: docs/gallery.md with a picture of every kind, drawn by collbench's own commands from committed runs.

gallery.toml lists them.  Each picture knows the run files that it was drawn from (by their hash, in the PNG), so a test
says which is out of date.  Nothing is measured.
"""

import hashlib
import io
import os
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from PIL import Image, PngImagePlugin

from tools import ROOT, output_of

PAGE, FOLDER = ROOT / "docs" / "gallery.md", ROOT / "docs" / "gallery"
SOURCE = "collbench-source"  # the key of the hash in a PNG


class Shown(NamedTuple):
    """A picture of the page: of which kind or view, what it teaches, and the command that draws it."""

    shows: str  # a name of figures.kinds or figures.views
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


_RECORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["picture"]
PICTURES = tuple(Shown(**record) for record in _RECORDS)


def drawn(command: str) -> dict[str, bytes]:
    """The committed form of all pictures that one command draws, by their names there."""
    with tempfile.TemporaryDirectory() as folder:
        output_of(command.format(out=folder).split(), ROOT)
        drawn_here = [shown for shown in PICTURES if shown.command == command]
        return {each.name: signed(Image.open(Path(folder, each.file)), SOURCE, each.source) for each in drawn_here}


def signed(picture: Image.Image, key: str, text: str) -> bytes:
    """Return a picture as PNG, with a text under that key in it."""
    said, file = PngImagePlugin.PngInfo(), io.BytesIO()
    said.add_itxt(key, text)
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
