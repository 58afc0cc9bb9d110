"""Faults that printed `ok` once, and one of each class besides; `make mutants` tries all."""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.mutants.__main__ import MUTANTS
from tests.mutants.trial import CAUGHT, PASSED, Mutant, carried_out, change, copied, tried

SAMPLE = (
    "one-shot without the last meeting",
    "one-shot without the last meeting, large",
    "on GPUs: one-shot without the last meeting",
    "older packets accepted",
    "a sum that is one off",
    "a launch loop that runs once",
    "packets sent past their inbox",
)
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels of this run alone."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("name", SAMPLE)
def test_a_fault_is_caught(name: str, tmp_path: Path, cache: Path) -> None:
    outcome = tried(BY_NAME[name], tmp_path, cache)
    assert outcome.verdict == CAUGHT, outcome.said


def test_the_package_as_it_is_passes_the_same_trial(tmp_path: Path, cache: Path) -> None:
    """Or a catch would say nothing."""
    with copied(tmp_path) as place:
        outcome = carried_out(place, BY_NAME[SAMPLE[0]].trial, cache)
    assert outcome.verdict == PASSED, outcome.said


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_fault_changes_what_is_there(mutant: Mutant, tmp_path: Path) -> None:
    """Each text stands there once, so that a fault moves with the code or fails by name."""
    (tmp_path / mutant.file).parent.mkdir(parents=True)
    (tmp_path / mutant.file).write_text((ROOT / mutant.file).read_text())
    change(tmp_path, mutant)
    assert (tmp_path / mutant.file).read_text() != (ROOT / mutant.file).read_text()


def test_there_are_enough_of_them_and_few_that_are_not_caught() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 100
    assert sum(bool(mutant.unseen) for mutant in MUTANTS) <= 10
