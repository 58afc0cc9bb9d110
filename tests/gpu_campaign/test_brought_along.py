"""Toolkit and NCCL as they are brought to a machine: as wheels, as lone files, behind links and scripts."""

from pathlib import Path

import pytest

from collbench.errors import Unsupported
from tests.gpu import nccl_tests

HEADER = ("include", "cuda_runtime.h")


def make(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")


@pytest.fixture(autouse=True)
def wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where NVIDIA's wheels would be, and no variable that names a toolkit."""
    for name in ("CUDA_HOME", "CUDA_PATH", "COLLBENCH_NCCL"):
        monkeypatch.delenv(name, raising=False)
    places = tmp_path / "site" / "nvidia"
    monkeypatch.setattr(nccl_tests.importlib.util, "find_spec", lambda name: _Found(places))
    return places


class _Found:
    """A package without a file."""

    def __init__(self, folder: Path) -> None:
        self.submodule_search_locations = [str(folder)]


@pytest.mark.parametrize("place", ["include", "lib", "wheel"])
def test_headers_of_an_nccl_that_was_named_are_beside_it_or_in_the_wheel(
    place: str, tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the library that is named, even so."""
    library = tmp_path / "brought" / "lib" / "libnccl.so.2"
    include = {
        "include": tmp_path / "brought" / "include",
        "lib": library.parent,
        "wheel": wheels / "nccl" / "include",
    }[place]
    make(library, include / "nccl.h")
    monkeypatch.setenv("COLLBENCH_NCCL", str(library))
    home = nccl_tests.nccl_home(tmp_path / "home")
    assert (home / "include" / "nccl.h").resolve() == include / "nccl.h"
    assert (home / "lib" / "libnccl.so").resolve() == (home / "lib" / "libnccl.so.2").resolve() == library


def test_without_a_name_it_is_the_wheel(tmp_path: Path, wheels: Path) -> None:
    make(wheels / "nccl" / "include" / "nccl.h", wheels / "nccl" / "lib" / "libnccl.so.2")
    home = nccl_tests.nccl_home(tmp_path / "home")
    assert (home / "lib" / "libnccl.so").resolve() == wheels / "nccl" / "lib" / "libnccl.so.2"


def test_without_headers_or_library_it_is_said_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unsupported, match="no wheel of NCCL to build against: pip install"):
        nccl_tests.nccl_home(tmp_path / "home")
    monkeypatch.setenv("COLLBENCH_NCCL", str(tmp_path / "libnccl.so.2"))
    with pytest.raises(Unsupported, match=r"no nccl.h for .*libnccl.so.2: put it beside that, or pip install"):
        nccl_tests.nccl_home(tmp_path / "home")


def a_compiler(path: Path, says: str = "") -> Path:
    """One that says of itself where it works from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '#$ _SPACE_= ' >&2\necho '{says}' >&2\n")
    path.chmod(0o755)
    return path


def test_a_link_to_nvcc_leads_to_its_toolkit(tmp_path: Path) -> None:
    home = tmp_path / "cuda-13.0"
    make(home.joinpath(*HEADER), home / "lib64" / "libcudart.so")
    link = tmp_path / "bin" / "nvcc"
    link.parent.mkdir()
    link.symlink_to(a_compiler(home / "bin" / "nvcc"))
    assert nccl_tests.cuda_home(link, tmp_path) == (home, home / "lib64")


def test_a_script_called_nvcc_is_asked_for_the_toolkit_that_it_calls(tmp_path: Path) -> None:
    home = tmp_path / "cuda-13.0"
    make(home.joinpath(*HEADER), home / "bin" / "ptxas")
    script = a_compiler(tmp_path / "wrapped" / "bin" / "nvcc", f"#$ TOP={home}/bin/..")
    found, libraries = nccl_tests.cuda_home(script, tmp_path)
    assert (found.resolve(), libraries.name) == (home, "lib64")


def test_of_a_script_that_says_nothing_the_toolkit_is_what_a_variable_names_or_a_wheel(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = a_compiler(tmp_path / "wrapped" / "bin" / "nvcc")
    with pytest.raises(Unsupported, match=r"nvcc has no include/cuda_runtime.h .*: name the CUDA toolkit by CUDA_HOME"):
        nccl_tests.cuda_home(script, tmp_path)
    make((wheels / "cu13").joinpath(*HEADER), wheels / "cu13" / "lib" / "libcudart.so.13")
    assert nccl_tests.cuda_home(script, tmp_path) == (wheels / "cu13", wheels / "cu13" / "lib")
    make((tmp_path / "own").joinpath(*HEADER))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "own"))
    assert nccl_tests.cuda_home(script, tmp_path)[0] == tmp_path / "own"
