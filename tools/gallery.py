"""`make gallery`: docs/gallery.md with a picture of every kind, drawn by collbench's commands from committed runs.

gallery.toml lists the pictures.  The PNG holds a hash of the picture's command and run files, by which a test finds a
picture that is outdated.
"""

import hashlib
import io
import os
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from PIL import Image, PngImagePlugin

from tools import ONE_H100, ROOT, output_of

FOLDER = ROOT / "docs" / "gallery"
SOURCE = "collbench-source"  # the key of the hash in a PNG
HEAD = """# Gallery

Every kind of picture, each below the command that draws it from a run in this repository.
`make gallery` draws them and writes this page; [figures](figures.md) has the options."""


class Shown(NamedTuple):
    """A picture of the page, its explanation, and the command that draws it."""

    shows: str  # a name of figures.kinds or figures.views
    file: str  # name of the file that the command writes
    title: str
    words: str
    command: str  # without `collbench`; `{out}` stands for the folder of the picture

    @property
    def name(self) -> str:
        """The file name of the committed picture."""
        return f"{self.title.lower().replace(' ', '-')}.png"

    @property
    def runs(self) -> list[Path]:
        """The committed run files that the picture is drawn from."""
        folders = [ROOT / word for word in self.command.split() if word.startswith("results/")]
        return [path for folder in folders for path in sorted(folder.rglob("run.jsonl"))]

    @property
    def source(self) -> str:
        """A hash of the command and of the run files."""
        digest = hashlib.sha256(self.command.encode())
        for path in self.runs:
            digest.update(path.read_bytes())
        return digest.hexdigest()


_TEXT = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8").replace("{one_h100}", ONE_H100)
_RECORDS = tomllib.loads(_TEXT)["picture"]
PICTURES = tuple(Shown(**record) for record in _RECORDS)


def drawn(command: str) -> dict[str, bytes]:
    """Return the PNGs of all pictures that one command draws, by their committed names."""
    with tempfile.TemporaryDirectory() as folder:
        output_of(command.format(out=folder).split(), ROOT)
        drawn_here = [shown for shown in PICTURES if shown.command == command]
        return {each.name: signed(Image.open(Path(folder, each.file)), SOURCE, each.source) for each in drawn_here}


def signed(picture: Image.Image, key: str, text: str) -> bytes:
    """Return a picture as PNG with a text under a key."""
    said, file = PngImagePlugin.PngInfo(), io.BytesIO()
    said.add_itxt(key, text)
    picture.save(file, "png", optimize=True, pnginfo=said)
    return file.getvalue()


def page() -> str:
    """Return the text of docs/gallery.md."""
    lines = [HEAD]
    for shown in PICTURES:
        command = shown.command.format(out="figures").replace(" -o figures/", " -o ")
        lines += ["", f"## {shown.title}", "", shown.words, "", f"    collbench {command}", ""]
        lines.append(f"![{shown.title}](gallery/{shown.name})")
    return "\n".join(lines) + "\n"


def written() -> Iterator[tuple[Path, bytes | str]]:
    """Yield the page, and then each picture with its bytes."""
    yield ROOT / "docs" / "gallery.md", page()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(drawn, dict.fromkeys(shown.command for shown in PICTURES)):
            for name, content in found.items():
                yield FOLDER / name, content
