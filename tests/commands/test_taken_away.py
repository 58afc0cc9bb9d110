"""A command is a folder: without it the rest is whole, and nothing but its users knows of it."""

from pathlib import Path

import pytest

from tools.without import commands, complaints, copied, with_users


@pytest.mark.full
@pytest.mark.parametrize("name", commands())
def test_without_a_command_help_linter_and_the_tests_of_the_others_are_whole(name: str, tmp_path: Path) -> None:
    gone = with_users(name)
    copied(tmp_path, gone)
    assert list(complaints(tmp_path, gone, tests=False)) == []
