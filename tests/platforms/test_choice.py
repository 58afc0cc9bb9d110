"""Which platform `--on auto` takes."""

import pytest

from collbench.cli._options import left_aside
from collbench.platforms import PLATFORMS, on_auto, platform_module
from collbench.platforms.gpu import platform


def test_without_gpus_it_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing more is said."""
    monkeypatch.setattr(platform, "available", lambda: False)
    assert on_auto() == "cpu"
    assert left_aside("auto", "cpu") == ""


def test_gpus_are_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are what collbench is for."""
    monkeypatch.setattr(platform, "available", lambda: True)
    monkeypatch.setattr(platform, "missing", lambda: "")
    monkeypatch.setattr(platform, "broken", lambda: "")
    assert on_auto() == "gpu"


def test_gpus_without_cupy_are_passed_over_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command measures something, and says what to install."""
    monkeypatch.setattr(platform, "available", lambda: True)
    monkeypatch.setattr(platform, "missing", lambda: "CuPy: pip install it")
    assert on_auto() == "cpu"
    assert left_aside("auto", "cpu").endswith("install CuPy: pip install it")
    assert left_aside("cpu", "cpu") == ""


@pytest.mark.parametrize("doubt", ["refusal", "broken"])
def test_gpus_that_do_not_work_are_passed_over_with_a_word(monkeypatch: pytest.MonkeyPatch, doubt: str) -> None:
    """Whether the driver refuses or CuPy does; the line is one."""
    monkeypatch.setattr(platform, "available", lambda: True)
    monkeypatch.setattr(platform, "missing", lambda: "")
    monkeypatch.setattr(platform, "broken", lambda: "")
    monkeypatch.setattr(platform, doubt, lambda: "it says so")
    assert on_auto() == "cpu"
    assert left_aside("auto", "cpu") == "collbench: the gpu cannot be used, so this is the cpu: it says so"


@pytest.mark.parametrize("name", PLATFORMS)
def test_every_platform_answers_before_it_is_opened(name: str) -> None:
    """What the command line asks while nothing has been started."""
    module = platform_module(name)
    assert isinstance(module.available(), bool)
    assert isinstance(module.missing(), str)
    assert isinstance(module.refusal(), str)
    assert isinstance(module.broken(), str)
    assert module.STARTUP >= 60
    assert module.default_ranks() >= 2
    assert module.LAST >= 2**20
    module.refuse_too_large({}, 2)
