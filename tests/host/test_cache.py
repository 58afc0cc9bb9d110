"""The cache: ours alone whatever was there before, and each file made once."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from collbench.errors import PlatformError
from collbench.host import cache
from collbench.platforms import compiler


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, made while the umask forbids nothing."""
    monkeypatch.setenv("COLLBENCH_CACHE", str(tmp_path / "cache"))
    before = os.umask(0)
    yield tmp_path / "cache"
    os.umask(before)


def kernels() -> Path:
    """The folder of compiled kernels, by the name that it has now."""
    return stored("ring").parent.resolve()


def stored(stem: str) -> Path:
    return cache.cached_file(stem, ".so", PlatformError, lambda product: product.write_bytes(stem.encode()))


def test_the_folder_is_ours_alone_whatever_the_umask(own: Path) -> None:
    (own / "kernels").mkdir(parents=True)
    assert stat.S_IMODE(kernels().stat().st_mode) == 0o700


def test_the_folder_of_another_user_is_refused_in_one_line_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(PlatformError, match=r"kernels: it belongs to user \d+; set COLLBENCH_CACHE to"):
        kernels()


def test_a_folder_that_is_exchanged_after_it_was_looked_at_gives_no_code(own: Path) -> None:
    path = stored("ring")
    own.rename(own.with_name("aside"))
    (own / "kernels").mkdir(parents=True)
    (own / "kernels" / "ring.so").write_bytes(b"foreign")
    assert path.read_bytes() == b"ring"
    shutil.rmtree(own)
    assert stored("ring").resolve() == own / "kernels" / "ring.so"


def test_what_others_left_before_the_folder_was_private_is_made_anew(own: Path, tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    aim.write_bytes(b"foreign")
    path = kernels() / "flags.so"
    path.write_bytes(b"foreign")
    path.chmod(0o666)
    assert stored("flags").read_bytes() == b"flags"
    for name in ("tree.so", "mesh.new"):
        (kernels() / name).symlink_to(aim)
    assert [stored(stem).read_bytes() for stem in ("tree", "mesh")] == [b"tree", b"mesh"]
    (kernels() / "pair.lock").symlink_to(aim)
    with pytest.raises(OSError, match="symbolic links"):
        stored("pair")
    assert aim.read_bytes() == b"foreign"
    assert not any(path.stat().st_mode & 0o077 for path in kernels().glob("*.so"))


def test_a_link_in_the_place_of_the_folder_is_not_followed(own: Path, tmp_path: Path) -> None:
    own.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (own / "kernels").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlatformError, match=r"it is a link; set COLLBENCH_CACHE"):
        kernels()


def test_a_place_where_no_folder_can_be_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for where in ("file/inside", "file"):
        monkeypatch.setenv("COLLBENCH_CACHE", str(tmp_path / where))
        with pytest.raises(PlatformError, match=r"^cannot keep compiled kernels in .*; set COLLBENCH_CACHE"):
            kernels()


def test_a_file_that_could_not_be_made_has_no_name_and_one_that_was_made_is_not_made_again(own: Path) -> None:
    def fail(product: Path) -> None:
        product.write_bytes(b"half")
        raise PlatformError("no room")

    with pytest.raises(PlatformError, match="no room"):
        cache.cached_file("ring", ".so", PlatformError, fail)
    assert not list((own / "kernels").glob("*.so"))
    for _ in range(2):
        path = cache.cached_file("ring", ".so", PlatformError, lambda product: product.write_bytes(b"code"))
        assert path.read_bytes() == b"code"
    assert cache.cached_file("ring", ".so", PlatformError, fail) == path


def test_a_damaged_kernel_in_the_cache_is_compiled_anew() -> None:
    compiler.host_library.cache_clear()
    library = compiler.host_library("gate.cu", ())
    whole = library.read_bytes()
    library.write_bytes(b"")
    compiler.loaded("gate.cu")
    assert library.stat().st_size == len(whole)
    compiled = library.stat().st_mtime_ns
    compiler.loaded("gate.cu")
    assert library.stat().st_mtime_ns == compiled
