"""The cache: ours alone whatever was there before, and what is loaded from it is what was left in it."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collbench.errors import PlatformError
from collbench.host import cache
from collbench.platforms import compiler

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
    folder = cache.private_folder("kernels", PlatformError)
    product = folder / "product"
    product.write_bytes(text)
    place = cache.keep(product, folder, STEM, SUFFIX)
    product.unlink()
    return place


def test_folders_and_files_are_ours_alone_whatever_the_umask(own: Path) -> None:
    (own / "kernels").mkdir(parents=True)
    assert mode(own / "kernels") == 0o777
    left()
    assert {path.name: mode(path) for path in own.iterdir()} == {"kernels": 0o700}
    assert all(not mode(path) & 0o077 for path in (own / "kernels").iterdir())


def test_the_folder_of_another_user_is_refused_in_one_line_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.private_folder("kernels", PlatformError).mkdir(exist_ok=True)
    cache._folders.clear()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(PlatformError, match=r"kernels: it belongs to user \d+; set COLLBENCH_CACHE to"):
        cache.private_folder("kernels", PlatformError)


def test_a_link_in_the_place_of_a_folder_is_not_followed(own: Path, tmp_path: Path) -> None:
    own.mkdir()
    (tmp_path / "elsewhere").mkdir()
    for name in ("kernels", "history"):
        (own / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(PlatformError, match=r"it is a link; set COLLBENCH_CACHE"):
            cache.private_folder(name, PlatformError)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_place_where_no_folder_can_be_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for where in ("file/inside", "file"):
        monkeypatch.setenv("COLLBENCH_CACHE", str(tmp_path / where))
        with pytest.raises(PlatformError, match=r"^cannot keep compiled kernels in .*; set COLLBENCH_CACHE"):
            cache.private_folder("kernels", PlatformError)


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


SPOILT: dict[str, Callable[[Path], object]] = {
    "changed": lambda path: path.write_bytes(b"other code"),
    "torn": lambda path: path.write_bytes(b""),
    "open to others": lambda path: path.chmod(0o602),
    "hard link": lambda path: os.link(path, path.with_name("second")),
    "link": _link,
    "fifo": _fifo,
    "another kernel's": lambda path: path.rename(path.with_name(path.name.replace("0123", "ffff"))),
} | ({"another user's": lambda path: os.chown(path, 65534, -1)} if os.geteuid() == 0 else {})


def test_what_is_no_longer_what_was_kept_is_not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for how, spoil in SPOILT.items():
        monkeypatch.setenv("COLLBENCH_CACHE", str(tmp_path / how))
        path = left()
        assert cache.find(path.parent, STEM, SUFFIX) == path, how
        assert cache.find(path.parent, "ring-fedcba9876543210", SUFFIX) is None, how
        spoil(path)
        for stem in (STEM, STEM.replace("0123", "ffff")):
            assert cache.find(path.parent, stem, SUFFIX) is None, how
        assert left() == path, how
        assert cache.find(path.parent, STEM, SUFFIX) == path, how


def test_a_real_kernel_is_compiled_anew_when_its_file_was_exchanged_and_a_linked_lock_empties_nothing(
    own: Path, tmp_path: Path
) -> None:
    def compiled() -> Path:
        compiler.host_library.cache_clear()
        compiler.host_kernel("check.cu", compiler.entries("check.cu")[0], ("-DELEMENT=float", "-DREDOP=0"))
        (library,) = (own / "kernels").glob("*.so")
        return library

    library = compiled()
    whole = library.read_bytes()
    library.unlink()  # not written over: it is in this process's memory
    library.write_bytes(b"\x7fELF planted")
    library.chmod(0o600)
    (tmp_path / "precious").write_text("all")
    (lock,) = (own / "kernels").glob("*.lock")
    lock.unlink()
    lock.symlink_to(tmp_path / "precious")
    assert compiled().read_bytes() == whole
    assert (tmp_path / "precious").read_text() == "all"
    assert not lock.is_symlink()
    before = library.stat().st_ino
    assert compiled().stat().st_ino == before
    assert max(mode(path) for path in (own / "kernels").iterdir()) == 0o600
