"""README and documents say what the code does."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from collbench import cli
from collbench.cli.list import command
from collbench.implementations import implementations
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_readme_shows_the_real_list() -> None:
    """`collbench list`, word for word."""
    assert CliRunner().invoke(command).output.strip() in README


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
    """Every relative link and picture exists."""
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_file_of_the_package_has_a_place_in_the_map() -> None:
    """docs/architecture.md names each module or folder."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "collbench").iterdir():
        name = f"{path.name}/" if path.is_dir() else path.name
        if not name.startswith("_"):
            assert f"`{name}`" in page, name


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
