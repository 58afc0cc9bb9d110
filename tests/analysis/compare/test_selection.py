"""`--only`: which rows are wanted, and what is no word."""

import math

import pytest

from collbench.analysis.compare.selection import Selection, selection
from collbench.errors import UsageError
from tests.conftest import case


def test_only_takes_kinds_together_and_words_of_a_kind_as_alternatives() -> None:
    """By collective, implementation and size, ends included."""
    chosen = selection("all_reduce, 1K..4K,1M.., mpi", ["mpi", "nccl"])
    assert chosen == Selection(frozenset({"allreduce"}), frozenset({"mpi"}), ((1024, 4096), (2**20, math.inf)))
    assert chosen(case(nbytes=4096), "mpi")
    assert chosen(case(nbytes=2**24), "mpi")
    assert not chosen(case(nbytes=8192), "mpi")
    assert not chosen(case(nbytes=4096), "nccl")
    assert not chosen(case("broadcast", nbytes=4096), "mpi")
    assert selection("..64K,4K", []).sizes == ((0, 65536), (4096, 4096))


@pytest.mark.parametrize(("word", "told"), [("alreduce", "allreduce"), ("1Q..2K", "1K..1M"), ("4K..1K", "smaller")])
def test_only_names_the_choices(word: str, told: str) -> None:
    """A word that is nothing is refused."""
    with pytest.raises(UsageError, match=told):
        selection(word, ["mpi"])


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1K..1K", (1024, 1024)),
        ("..1", (0, 1)),
        ("1M..", (2**20, math.inf)),
        ("0", (0, 0)),
        ("..", (0, math.inf)),
        ("4K", (4096, 4096)),
    ],
)
def test_a_range_without_an_end_is_open_there(text: str, sizes: tuple[int, float]) -> None:
    """And may be of one size."""
    assert selection(text, []) == Selection(sizes=(sizes,))


def test_a_range_includes_both_ends() -> None:
    """And nothing beyond them."""
    chosen = selection("1K..4K", [])
    assert [chosen(case(nbytes=nbytes), "mpi") for nbytes in (1020, 1024, 4096, 4100)] == [False, True, True, False]


def test_nothing_selected_is_everything() -> None:
    """Empty words are none."""
    assert selection(" , ,", []) == Selection()
    assert Selection()(case(nbytes=8), "mpi")


def test_a_name_is_an_implementation_before_it_is_a_collective() -> None:
    """As what runs hold names."""
    assert selection("broadcast", ["broadcast"]) == Selection(implementations=frozenset({"broadcast"}))


def test_the_refusal_of_a_word_lists_collectives_implementations_and_sizes() -> None:
    """All that it could have been."""
    with pytest.raises(UsageError) as refused:
        selection("mpj", ["mpi", "ring-flags"])
    told = str(refused.value)
    assert told.startswith("--only: unknown word 'mpj'; choose from: allreduce, ")
    assert told.endswith(", mpi, ring-flags, or a size such as 4K, 1K..1M, 1M.. or ..64K")
