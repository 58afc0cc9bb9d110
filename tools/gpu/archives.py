"""What a campaign gives back: its page and two archives, which are whole whenever somebody looks at them.

A lent machine may keep nothing, and return a few files of one folder only.  So the page and all that the stages left go
there after every stage, and compiled kernels whenever there are new ones.  Unpacked where they came from, the next
command goes on with them.
"""

import shutil
import tarfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tools.gpu import page

CAMPAIGN, KERNELS = "campaign.tar.gz", "kernel-cache.tar.xz"
MOST = 15 * 2**20  # bytes of an archive
SCRATCH = "scratch"  # folders of what can be made again
_HELD_BACK = 2**16  # bytes that a compressor may not have written yet
_TAR = {
    ".gz": partial(tarfile.open, mode="w:gz", compresslevel=6),
    ".xz": partial(tarfile.open, mode="w:xz", preset=1),  # sees that kernels resemble each other
}


class Back:
    """The folder that is brought back, or none."""

    def __init__(self, out: Path | None, campaign: Path, kernels: Path) -> None:
        self._out, self._campaign, self._kernels = out, campaign, kernels
        self._packed: set[Path] = set()  # kernels in the archive

    def bring(self) -> None:
        """Replace page and archives by those of now; kernels only if there are others."""
        if self._out is None or not self._campaign.is_dir():
            return
        self._out.mkdir(parents=True, exist_ok=True)
        if (self._campaign / page.PAGE).exists():
            _replace(self._out / page.PAGE, self._campaign / page.PAGE)
        pack(self._out / CAMPAIGN, self._campaign, _files(self._campaign))
        kernels = set(_files(self._kernels))
        if kernels - self._packed:
            pack(self._out / KERNELS, self._kernels, kernels)
            self._packed = kernels


def pack(archive: Path, folder: Path, files: Iterable[Path]) -> None:
    """An archive of files below a folder, under the folder's name; the smallest first, as many as MOST has room for."""
    scratch, wanted = archive.with_name(f".{archive.name}"), sorted((path.stat().st_size, path) for path in files)
    with scratch.open("wb") as file, _TAR[archive.suffix](fileobj=file) as packed:
        for number, (size, path) in enumerate(wanted):
            if file.tell() + size + _HELD_BACK > MOST:
                print(f"{archive} has no room for {len(wanted) - number} of {len(wanted)} files", flush=True)
                break
            packed.add(path, str(Path(folder.name) / path.relative_to(folder)))
    scratch.replace(archive)


def _files(folder: Path) -> list[Path]:
    """Those that are whole and of use to somebody."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in paths if SCRATCH not in path.relative_to(folder).parts and path.name[0] != "."]


def _replace(path: Path, source: Path) -> None:
    scratch = path.with_name(f".{path.name}")
    shutil.copyfile(source, scratch)
    scratch.replace(path)
