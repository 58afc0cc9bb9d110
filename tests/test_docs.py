"""README and documents say what the code does."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from collbench import cli
from collbench.implementations import implementations
from tests.conftest import ROOT
from tools import file_map

README = (ROOT / "README.md").read_text()
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "CHANGELOG.md",
    ROOT / "results" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("name", cli.group.list_commands(None))  # type: ignore[arg-type]
def test_every_command_is_in_the_readme(name: str) -> None:
    """A user finds it there first."""
    assert f"collbench {name}" in README


@pytest.mark.parametrize("name", implementations())
def test_every_implementation_is_in_the_changelog(name: str) -> None:
    """What is new is told."""
    assert f"`{name}`" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link and picture exists, and so does the heading that it names."""
    for target in re.findall(r"\]\(([^)\s]+)", page.read_text()):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            linked = page.parent / path if path else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), target


def anchors(page: Path) -> list[str]:
    """What GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings]


def test_every_page_is_reached_from_the_readme() -> None:
    """A page that nothing links to is not read."""
    assert {page.name for page in PAGES if page.parent.name == "docs" and f"](docs/{page.name})" not in README} == set()


def test_every_path_in_a_page_exists() -> None:
    """Also after files have moved; of a NAME to choose, the folder; what commands write has no place here."""
    for page in PAGES:
        for path in re.findall(r"`((?:collbench|kernels|tests|results|docs)/[\w./-]*\w)`", page.read_text()):
            known = path.partition("NAME")[0]
            assert (ROOT / known).exists() or known.startswith("results/runs"), f"{page.name}: {path}"


def test_the_file_map_is_of_this_package() -> None:
    """`python -m tools.file_map` writes it anew."""
    assert file_map.PAGE.read_text() == file_map.page()


def test_the_readme_compares_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, verdicts and the gate, word for word."""
    folder, arguments, shown = re.search(
        r"\$ cd (\S+).*\n\$ collbench compare (.*)\n((?:.+\n|\n)+?)```", README
    ).groups()  # type: ignore
    monkeypatch.chdir(ROOT / folder)
    outcome = CliRunner().invoke(cli.group.get_command(None, "compare"), arguments.split(), standalone_mode=False)  # type: ignore
    assert outcome.return_value == 3
    assert all(line in outcome.output.splitlines() for line in shown.splitlines())
    assert shown.count("ring-flags") == 3


def test_every_option_of_the_readme_exists() -> None:
    """No example teaches a word that is refused."""
    known = {option for parameter in cli.group.get_command(None, "sweep").params for option in parameter.opts}  # type: ignore
    for example in re.findall(r"collbench sweep [^`\n]*", README):
        for word in re.findall(r"(?<= )--?[a-zA-Z][\w-]*", example):
            assert word in known | {"--help"}, word
