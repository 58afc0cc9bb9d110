"""What a report says of plans: words, tables, and rows; all of it as predicted."""

import re
from pathlib import Path

import pytest

from collbench.results import Prediction
from collbench.runfile.store import read
from tests.commands.report.pages import Text, built, write
from tests.commands.train.made_up_plans import compared, grown, paid, ranked
from tests.conftest import case


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return built(write(tmp_path_factory.mktemp("run"), *ranked(), *grown(), *compared(), *paid()))


def test_the_page_says_that_nobody_measured_it(page: str) -> None:
    text = Text(page).text
    assert "training plan: here" in text
    assert '<span class="status predicted">predicted</span>' in page
    assert '<span class="status measured">' not in page
    assert (
        "predicted: tp8 dp8 mb1 zero3, 10 s a step (9 s .. 12 s), 40% MFU, 44 of 80 GiB; 1 of the 3 others shown may be"
        in text
    )
    for caption in ("Layouts", "Scaling", "Interconnects", "Cost"):
        assert f"{caption}, predicted" in text


def test_the_tables_hold_the_plans(page: str) -> None:
    text = Text(page).text
    assert "tp8 dp8 mb1 zero3 dgx-h100 64 10 s 9 s .. 12 s 40.0% 105 k 25.0% 44.0 GiB" in text
    assert "tp8 dp4 mb1 dgx-h100 32 2.71 s 2.44 s .. 3.26 s 40.0% 387 k 96.0%" in text
    assert "tp8 dp8 mb1 pcie4-4090-p2p 64 40 s 36 s .. 48 s 40.0% 26.2 k 25.0% 6.67x" in text
    assert re.search(r"dp64 dgx-h100 64 15\.2 s .*? 17 days \(15 \.\. 20\) 51 k \(46 k \.\. 62 k\) yes", text)
    assert re.search(r"dp64 dgx-a100 64 22\.7 s .*? no", text)
    pattern = r'<tr><th scope="row">tp8 dp8 mb1 zero3(?:(?!</tr>).)*predicted layout plan.*?</tr>'
    row = re.search(pattern, page, re.DOTALL)
    assert row
    for words in ("10 s", "9 s .. 12 s", "predicted layout plan: MFU 40%"):
        assert words in row[0]
    table = page[page.index('id="rows"') :]
    assert "busbw" not in table[: table.index("</thead>")], "it is no collective alone"


def test_plans_stand_beside_other_rows(tmp_path: Path) -> None:
    rows = [Prediction(case(nbytes=2**power), "nccl", 1e-5, 9e-6, 2e-5) for power in range(10, 20)]
    mixed = built(write(tmp_path / "mixed", *rows, *ranked()))
    assert "nccl should take" in Text(mixed).text
    assert 'id="plans"' in mixed
    assert 'id="plans"' not in built(write(tmp_path / "plain", *rows))
    assert read(tmp_path / "mixed").results[-1] == ranked()[-1]
