"""The cache: ours alone whatever was there before, and what is loaded from it is what was left in it."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from collbench import cache
from collbench.errors import PlatformError
from collbench.platforms import kernels
from collbench.runs.index import Index

STEM, SUFFIX = "ring-0123456789abcdef", ".so"


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, made while the umask forbids nothing."""
    monkeypatch.setenv("COLLBENCH_CACHE", str(tmp_path / "cache"))
    before = os.umask(0)
    yield tmp_path / "cache"
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def left(text: bytes = b"code") -> Path:
    """What was kept in the cache."""
    folder = cache.private("kernels")
    product = folder / "product"
    product.write_bytes(text)
    place = cache.keep(product, folder, STEM, SUFFIX)
    product.unlink()
    return place


def compiled() -> Callable[..., None]:
    """A kernel of ours, from the cache or new."""
    kernels.host_library.cache_clear()
    return kernels.host_kernel("check.cu", kernels.entries("check.cu")[0], ("-DELEMENT=float", "-DREDOP=0"))


def test_folders_and_files_are_ours_alone_whatever_the_umask(own: Path) -> None:
    """Also the index of runs, also where the folder was open to all before."""
    (own / "kernels").mkdir(parents=True)
    assert mode(own / "kernels") == 0o777
    left()
    Index(own).load()
    assert {path.name: mode(path) for path in own.iterdir()} == {"kernels": 0o700, "history": 0o700}
    assert all(not mode(path) & 0o077 for path in (own / "kernels").iterdir())


def test_the_folder_of_another_user_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fix."""
    cache.private("kernels").mkdir(exist_ok=True)
    cache._folders.clear()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(PlatformError, match=r"kernels: it belongs to user \d+; set COLLBENCH_CACHE to"):
        cache.private("kernels")


@pytest.mark.parametrize("name", ["kernels", "history"])
def test_a_link_in_its_place_is_not_followed(own: Path, tmp_path: Path, name: str) -> None:
    """Nothing is written where it leads."""
    own.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (own / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlatformError, match=r"it is a link; set COLLBENCH_CACHE"):
        cache.private(name)
    Index(own).load()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_what_was_kept_is_known_again_by_its_stem() -> None:
    """And by no other."""
    path = left()
    assert cache.kept(path.parent, STEM, SUFFIX) == path
    assert cache.kept(path.parent, "ring-fedcba9876543210", SUFFIX) is None


def _hard_linked(path: Path) -> None:
    os.link(path, path.with_name("second"))


def _linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _of_another(path: Path) -> None:
    path.rename(path.with_name(path.name.replace("0123", "ffff")))


SPOILT: dict[str, Callable[[Path], object]] = {
    "changed": lambda path: path.write_bytes(b"other code"),
    "torn": lambda path: path.write_bytes(b""),
    "open to others": lambda path: path.chmod(0o602),
    "hard link": _hard_linked,
    "link": _linked,
    "fifo": _fifo,
    "another kernel's": _of_another,
}


@pytest.mark.parametrize("how", SPOILT)
def test_what_is_no_longer_what_was_kept_is_not_loaded(how: str) -> None:
    """However it came about; nothing waits for a writer, and the place is free for a new one."""
    path = left()
    SPOILT[how](path)
    for stem in (STEM, STEM.replace("0123", "ffff")):
        assert cache.kept(path.parent, stem, SUFFIX) is None
    assert left() == path
    assert cache.kept(path.parent, STEM, SUFFIX) == path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_file_of_another_user_is_not_loaded() -> None:
    """Though its name is right."""
    path = left()
    os.chown(path, 65534, -1)
    assert cache.kept(path.parent, STEM, SUFFIX) is None


def test_a_real_kernel_is_compiled_anew_when_its_file_was_exchanged(own: Path) -> None:
    """And runs; a second time it comes from the cache."""
    compiled()
    (library,) = (own / "kernels").glob("*.so")
    whole = library.read_bytes()
    library.unlink()  # not written over: it is in this process's memory
    library.write_bytes(b"\x7fELF planted")
    library.chmod(0o600)
    compiled()
    assert library.read_bytes() == whole
    before = library.stat().st_ino
    compiled()
    assert library.stat().st_ino == before
    assert np.array([mode(path) for path in (own / "kernels").iterdir()]).max() == 0o600


def test_a_lock_that_is_a_link_empties_nothing(own: Path, tmp_path: Path) -> None:
    """It is replaced."""
    (tmp_path / "precious").write_text("all")
    compiled()
    (lock,) = (own / "kernels").glob("*.lock")
    lock.unlink()
    lock.symlink_to(tmp_path / "precious")
    next((own / "kernels").glob("*.so")).unlink()
    compiled()
    assert (tmp_path / "precious").read_text() == "all"
    assert not lock.is_symlink()


def test_a_folder_that_was_removed_meanwhile_is_made_again(own: Path) -> None:
    """As by `rm -r ~/.cache` beside a long run."""
    first = cache.private("kernels")
    (own / "kernels").rmdir()
    second = cache.private("kernels")
    assert second != first
    assert second.is_dir()


def test_an_exchanged_folder_is_not_the_one_that_was_looked_at(own: Path, tmp_path: Path) -> None:
    """Its path goes through the handle, so who can rename a parent changes nothing."""
    path = left()
    own.rename(tmp_path / "moved")
    (own / "kernels").mkdir(parents=True)
    assert path.read_bytes() == b"code"
    assert (tmp_path / "moved" / "kernels" / path.name).exists()


@pytest.mark.parametrize("where", ["file/inside", "file"])
def test_a_place_where_no_folder_can_be_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """With the reason."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COLLBENCH_CACHE", str(tmp_path / where))
    with pytest.raises(PlatformError, match=r"^cannot keep compiled kernels in .*; set COLLBENCH_CACHE"):
        cache.private("kernels")
