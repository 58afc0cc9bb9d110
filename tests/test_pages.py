"""Pages, tables and package data are as the code writes them."""

import pytest

from tests.conftest import ROOT
from tools.pages import PAGES


@pytest.mark.usefixtures("all_commands")
def test_every_page_is_as_it_is_written() -> None:
    outdated = []
    for page in (page for page in PAGES if not page.needs):
        files = [path.relative_to(ROOT) for path, _ in page.outdated()]
        outdated += [f"{file} is outdated: python -m tools.pages {page.name}" for file in files]
    assert not outdated, "\n".join(outdated)
