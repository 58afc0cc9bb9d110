"""Faults on purpose: those of kernels stand where their records say, those of Python are drawn and tried."""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.mutants.of_python import Reader, drawn, main
from tools.mutants.trial import mutants

SUMS = '''"""Sums 1 + 1."""


def total(numbers: "list[int]", first: int) -> int:
    """Add 2 numbers."""
    if first < 0:
        raise ValueError(f"{first + 1} is below 0")
    return sum(numbers) + first


def untested(a: int, b: int) -> bool:
    return a == b


class Money:
    def __repr__(self) -> str:
        return "1" * 2
'''
TEST = """import pytest
from collbench import sums


def test_total():
    assert sums.total([1, 2], 3) == 6
    assert sums.total([1, 2], 0) == 3
    with pytest.raises(ValueError):
        sums.total([], -1)


def test_that_fails_without_a_fault():
    raise AssertionError
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {"collbench/sums.py": SUMS, "collbench/__init__.py": "", "tests/test_sums.py": TEST}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_each_text_of_a_recorded_fault_stands_once_in_its_file() -> None:
    known = mutants()
    assert len({mutant.name for mutant in known}) == len(known) > 100
    for mutant in known:
        text = (ROOT / mutant.file).read_text()
        assert [text.count(old) for old, _ in mutant.changes] == [1] * len(mutant.changes), mutant.name


def test_faults_are_of_code_and_not_of_docstrings_messages_types_and_representations(tree: Path) -> None:
    faults = drawn(tree, ["collbench"], 1, 100)
    assert {fault.line for fault in faults} == {6, 8, 12}
    assert {fault.operator for fault in faults} == {"arithmetic", "boundary", "comparison", "off by one", "return"}
    changed = Reader("a.py", b"def f(a, b):\n    go(a, b)\n    return not a or b\n").faults
    assert [fault.new for fault in changed] == ["pass", "go(b, a)", "None", "((not a) and (b))"]
    for fault in faults:
        text = (tree / fault.file).read_bytes()
        compile(text[: fault.start] + fault.new.encode() + text[fault.end :], fault.file, "exec")


def test_a_draw_is_the_same_for_the_same_seed_and_wherever_a_module_stands(tree: Path) -> None:
    first = [fault.key for fault in drawn(tree, ["collbench"], 1, 4)]
    (tree / "collbench" / "commands").mkdir()
    (tree / "collbench" / "sums.py").rename(tree / "collbench" / "commands" / "sums.py")
    assert [fault.key for fault in drawn(tree, ["collbench/commands"], 1, 4)] == first
    assert [fault.key for fault in drawn(tree, ["collbench"], 2, 4)] != first


def test_what_the_tests_do_not_see_survives_and_is_named_with_its_place(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    total = sum(fault.line < 12 for fault in drawn(tree, ["collbench"], 1, 100))
    assert main(["--tree", str(tree), "--number", "100", "collbench/sums.py"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("killed   collbench/sums.py:") == total
    summary, _, survivors = printed.partition("survivors:\n")
    assert f"{total} of {total + 2} killed" in summary
    assert "collbench/sums.py:12: comparison: `a == b` -> `(a) != (b)`" in survivors
    assert "collbench/sums.py:12: return: `a == b` -> `None`" in survivors
