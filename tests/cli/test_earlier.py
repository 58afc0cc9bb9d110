"""What had another name before acts the same, names today's, and stands in no list."""

import json
import warnings
from pathlib import Path

import pytest

import collbench
from collbench.cli.group import group
from collbench.errors import UsageError
from collbench.presence import SECTIONS, UNTIL, commands
from collbench.requests import functions
from tests.conftest import ROOT, Command
from tools import stubs

EARLIER = {name: record for name, record in commands().items() if record.now}
RUN = str(ROOT / "results" / "cpu-2-ranks")
FEW = "-b 1M -e 1M --no-plot --json -"
SAME = {  # today's words by the earlier ones
    f"runs {ROOT / 'results'}": f"list runs {ROOT / 'results'}",
    f"fit {RUN} {RUN}": f"predict --fit {RUN} --fit {RUN}",
    f"fit {RUN} --on dgx-h100 -o x.toml": f"predict --fit {RUN} --on dgx-h100 -o x.toml",
    f"sweep --on dgx-h100 --nodes 2 {FEW}": f"predict dgx-h100 --impl all --nodes 2 {FEW}",
    f"check --run {RUN}": f"check {RUN}",
    "help list": "list --help",
    "help": "--help",
}


def test_every_record_names_what_there_is() -> None:
    for name, record in commands().items():
        assert record.load(record.code), name
        assert record.line, name
        assert (record.section in SECTIONS) is not bool(record.now or record.family), name
        for places in (record.rows, record.works, record.lists.values(), filter(None, (record.figures, record.part))):
            assert all(map(record.load, places)), name
        for function, module in record.functions.items():
            assert callable(record.load(f"{module}:{function}")), name


def test_type_checkers_know_all_functions_of_the_library() -> None:
    assert stubs.STUB.read_text() == stubs.text()


@pytest.mark.usefixtures("all_commands")
@pytest.mark.parametrize("words", SAME)
def test_an_earlier_form_does_the_same_and_says_todays(here: Command, words: str) -> None:
    before, now = here(*words.split()), here(*SAME[words].split())
    assert (before.returncode, _without_paths(before.stdout)) == (now.returncode, _without_paths(now.stdout))
    assert UNTIL in before.stderr.splitlines()[0]
    assert UNTIL not in now.stderr


def _without_paths(text: str) -> str:
    """Printed text without the command and the moment of a run, which differ by themselves."""
    if not text.startswith("{"):
        return text
    document = json.loads(text)
    return json.dumps({name: part for name, part in document.items() if name != "header"})


def test_earlier_names_are_offered_nowhere_and_explain_themselves(here: Command) -> None:
    listed = group.list_commands(None)  # type: ignore[arg-type]
    assert EARLIER.keys().isdisjoint(listed)
    for name, record in EARLIER.items():
        done = here(name, "--help")
        assert done.returncode == 0, name
        assert f"collbench {record.now}" in done.stderr.splitlines()[0], name


def test_earlier_functions_warn_of_todays_name(tmp_path: Path) -> None:
    for name in functions(earlier=True):
        assert name not in collbench.__all__
        with pytest.warns(DeprecationWarning, match=f"collbench.{name} is collbench."), pytest.raises(UsageError):
            getattr(collbench, name)(nowhere=tmp_path)
    with pytest.warns(DeprecationWarning, match="collbench.predict"):
        collbench.sweep(on="dgx-h100", minbytes="1M", maxbytes="1M")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collbench.predict("dgx-h100", minbytes="1M", maxbytes="1M")
