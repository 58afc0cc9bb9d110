"""What is known of platforms before any is opened, and which one `--on auto` takes."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from collbench.api.wanted import left_aside, make_sweep
from collbench.cli._sweep_options import DEFAULTS
from collbench.errors import UsageError
from collbench.platforms import find_platform, on_auto, platforms
from collbench.platforms.gpu import probe
from tests.conftest import ROOT


def known(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """A GPU platform of which this is known."""
    monkeypatch.setitem(platforms(), "gpu", replace(platforms()["gpu"], **fields))


def test_without_gpus_it_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing more is said."""
    known(monkeypatch, available=lambda: False, obstacle=lambda: "")
    assert on_auto() == "cpu"
    assert left_aside("auto", "cpu") == ""


def test_gpus_are_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are what collbench is for."""
    known(monkeypatch, available=lambda: True, obstacle=lambda: "")
    assert on_auto() == "gpu"
    assert left_aside("auto", "gpu") == ""


@pytest.mark.parametrize(
    ("doubt", "words", "reason"),
    [
        ("missing", "CuPy: pip install it", "install CuPy: pip install it"),
        ("refusal", "it says so", "it says so"),
        ("broken", "it says so", "it says so"),
    ],
)
def test_gpus_that_do_not_work_are_passed_over_with_a_word(
    monkeypatch: pytest.MonkeyPatch, doubt: str, words: str, reason: str
) -> None:
    """Whether CuPy is not there, the driver refuses or CuPy does; the line is one."""
    for name in ("refusal", "missing", "broken"):
        monkeypatch.setattr(probe, name, lambda name=name: words if name == doubt else "")
    monkeypatch.setattr(probe, "available", lambda: True)
    assert on_auto() == "cpu"
    assert left_aside("auto", "cpu") == f"the gpu cannot be used, so this is the cpu: {reason}"
    assert left_aside("cpu", "cpu") == ""


@pytest.mark.parametrize("launched", [None, (0, 2), (1, 2)])
def test_an_implementation_that_the_fallback_lacks_is_refused_with_what_is_wrong_with_the_gpus(
    monkeypatch: pytest.MonkeyPatch, launched: tuple[int, int] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """On whichever rank CuPy is broken, its error says so: it may be the only one that is shown."""
    known(monkeypatch, available=lambda: True, obstacle=lambda: "CuPy cannot be imported")
    reason = r"^nccl does not run on cpu; choose from: .* \(the gpu cannot be used, .*: CuPy cannot be imported\)$"
    with pytest.raises(UsageError, match=reason):
        make_sweep(DEFAULTS | {"impl": "nccl"}, launched)
    assert capsys.readouterr().err == "", "nothing is said twice"
    with pytest.raises(UsageError, match=r"^nccl does not run on cpu; choose from: [^()]*$"):
        make_sweep(DEFAULTS | {"impl": "nccl", "on": "cpu"}, launched)


@pytest.mark.parametrize("spin", ["busy", "yield"])
def test_a_way_to_wait_is_refused_where_no_rank_waits_on_a_core(monkeypatch: pytest.MonkeyPatch, spin: str) -> None:
    """Whoever chose the platform; on CPUs, and where nobody says how, there is no word."""
    known(monkeypatch, available=lambda: True, obstacle=lambda: "", default_ranks=lambda: 2)
    known(monkeypatch, refuse_too_large=lambda nbytes, ranks: None)
    for on in ("auto", "gpu"):
        with pytest.raises(UsageError, match=rf"^--spin {spin}: ranks wait on cores on cpu only; leave it out on gpu$"):
            make_sweep(DEFAULTS | {"on": on, "spin": spin}, None)
    assert make_sweep(DEFAULTS | {"on": "cpu", "spin": spin}, None)[1].spin == spin
    assert make_sweep(DEFAULTS | {"on": "gpu"}, None)[0] == "gpu"


@pytest.mark.parametrize("name", platforms())
def test_every_platform_answers_before_it_is_opened(name: str) -> None:
    """What the command line asks while nothing has been started."""
    kind = find_platform(name)
    assert kind.name == name
    assert isinstance(kind.available(), bool)
    assert isinstance(kind.installed(), bool)
    assert isinstance(kind.obstacle(), str)
    assert kind.startup >= 60
    assert kind.default_ranks() >= 2
    assert kind.largest >= 2**20
    kind.refuse_too_large(0, 2)


def test_an_unknown_platform_lists_the_choices() -> None:
    with pytest.raises(UsageError, match="unknown platform 'moon'; choose from: gpu, cpu"):
        find_platform("moon")


def test_the_records_need_no_hardware_library() -> None:
    """Neither CuPy nor MPI, nor NumPy: every command's help names the platforms."""
    script = "import sys; from collbench.platforms import platforms; platforms(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not {"cupy", "mpi4py", "numpy"} & set(done.stdout.split())
    assert {"collbench.platforms.cpu", "collbench.platforms.gpu"} <= set(done.stdout.split())
