"""Hand-written rungs on described systems."""

from contextlib import suppress
from dataclasses import replace

import pytest

from collbench.errors import Unsupported
from collbench.model.ladder import ladder
from collbench.model.predict import curve, predict
from collbench.topology.files import load
from tests.model.test_predict import case

SIZES = [1 << power for power in range(4, 33, 2)]


@pytest.mark.parametrize("rung", ladder())
def test_every_rung_is_predicted_and_no_faster_than_its_link(rung: str) -> None:
    sizes = [nbytes for nbytes in SIZES if rung != "one-shot-ll" or nbytes <= 1 << 18]
    found = curve(load("dgx-h100"), [case(8, nbytes) for nbytes in sizes], rung)
    times = [row.seconds for row in found]
    assert times == sorted(times)
    wire = ladder()[rung].wire
    for nbytes, expectation in zip(sizes, found, strict=True):
        sent = nbytes * (wire.nbytes / 4 if wire else 1)
        assert expectation.seconds > sent * (1 + 1 / 8) / 370.8e9
        assert expectation.low < expectation.seconds < expectation.high


def test_auto_is_the_best_rung_and_says_which() -> None:
    picked = set()
    for best in curve(load("dgx-h100"), [case(8, nbytes) for nbytes in SIZES], "auto"):
        times = {}
        for rung in (name for name, way in ladder().items() if not way.wire):
            with suppress(Unsupported):
                times[rung] = predict(load("dgx-h100"), best.case, rung).seconds
        fastest = min(times, key=lambda rung: times[rung])
        assert (best.seconds, best.note.picked) == (times[fastest], fastest)
        picked.add(fastest)
    assert {"one-shot-ll", "nvls"} <= picked


def test_a_rung_refuses_what_it_cannot_do_there() -> None:
    with pytest.raises(Unsupported, match=r"reaches the GPUs of one node"):
        predict(load("dgx-h100").of(2), case(16, 64), "two-shot")
    with pytest.raises(Unsupported, match="do not allow"):
        predict(load("pcie4-4090"), case(load("pcie4-4090").ranks, 64), "one-shot")
    with pytest.raises(Unsupported, match="switches that add"):
        predict(load("dgx-a100"), case(8, 64), "nvls")
    assert predict(load("dgx-a100"), case(8, 64), "auto").note.picked != "nvls"


def test_a_rung_uses_the_links_it_can_reach() -> None:
    switch, mesh = load("dgx-a100").part(4), replace(load("dgx-a100").part(4), fabric="mesh")
    ring = [predict(system, case(4, 1 << 30), "ring-pipelined").seconds for system in (switch, mesh)]
    both = [predict(system, case(4, 1 << 30), "two-shot").seconds for system in (switch, mesh)]
    assert ring[1] > 2 * ring[0]
    assert both[1] == both[0]
    slot = predict(load("pcie4-4090-p2p"), case(load("pcie4-4090-p2p").ranks, 1 << 30), "two-shot").seconds
    assert slot > 5 * both[0]
