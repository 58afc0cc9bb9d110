"""What is known of platforms before any is opened, and which one `--on auto` takes."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from collbench.errors import UsageError
from collbench.platforms import find_platform, on_auto, platforms
from collbench.platforms.gpu import probe
from collbench.requests.sweeps import SweepRequest, measured_sweep, passed_over
from tests.conftest import ROOT


def known(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setitem(platforms(), "gpu", replace(platforms()["gpu"], **fields))


def test_gpus_are_preferred_and_those_that_do_not_work_passed_over_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "available", lambda: True)
    for doubt in ("missing", "refusal", "broken"):
        for name in ("refusal", "missing", "broken"):
            monkeypatch.setattr(probe, name, lambda words="CuPy: do" if name == doubt else "": words)
        assert on_auto() == "cpu", doubt
        assert passed_over("auto", "cpu").endswith("CuPy: do"), doubt
        assert passed_over("cpu", "cpu") == ""
    for available, name in ((False, "cpu"), (True, "gpu")):
        known(monkeypatch, available=lambda available=available: available, obstacle=lambda: "")
        assert on_auto() == name
        assert passed_over("auto", name) == ""


def test_an_implementation_that_the_fallback_lacks_is_refused_with_what_is_wrong_with_the_gpus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known(monkeypatch, available=lambda: True, obstacle=lambda: "CuPy cannot be imported")
    reason = r"^nccl does not run on cpu; choose from: .* \(the gpu cannot be used, .*: CuPy cannot be imported\)$"
    for launched in (None, (0, 2), (1, 2)):
        with pytest.raises(UsageError, match=reason):
            measured_sweep(SweepRequest(impl="nccl"), launched)
        with pytest.raises(UsageError, match=r"^nccl does not run on cpu; choose from: [^()]*$"):
            measured_sweep(SweepRequest(impl="nccl", on="cpu"), launched)
    assert capsys.readouterr().err == "", "nothing is said twice"


def test_a_way_to_wait_is_refused_where_no_rank_waits_on_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, available=lambda: True, obstacle=lambda: "", default_ranks=lambda: 2)
    known(monkeypatch, refuse_too_large=lambda nbytes, ranks: None)
    for spin in ("busy", "yield"):
        for on in ("auto", "gpu"):
            with pytest.raises(UsageError, match=rf"^--spin {spin}: only ranks on cpu wait on cores; leave it out"):
                measured_sweep(SweepRequest(on=on, spin=spin))
        assert measured_sweep(SweepRequest(on="cpu", spin=spin))[1].spin == spin
    assert measured_sweep(SweepRequest(on="gpu"))[0] == "gpu"


def test_platforms_answer_before_they_are_opened_and_an_unknown_one_lists_the_choices() -> None:
    for name in platforms():
        kind = find_platform(name)
        assert [type(kind.available()), type(kind.installed()), type(kind.obstacle())] == [bool, bool, str]
        assert (kind.name, kind.startup >= 60, kind.default_ranks() >= 2) == (name, True, True)
    with pytest.raises(UsageError, match="unknown platform 'moon'; choose from: gpu, cpu"):
        find_platform("moon")


def test_the_records_need_no_hardware_library() -> None:
    script = "import sys; from collbench.platforms import platforms; platforms(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not {"cupy", "mpi4py", "numpy"} & set(done.stdout.split())
    assert {"collbench.platforms.cpu", "collbench.platforms.gpu"} <= set(done.stdout.split())
