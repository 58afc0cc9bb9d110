"""tools/goldens.py finds what differs between two source trees, and nothing where they are equal."""

from pathlib import Path

import pytest

from tools.goldens import SIDES, Golden, compare, svg_text, write_both

PROGRAM = """
import os, pathlib, sys, time
def main():
    if sys.argv[1] == "draw":
        pathlib.Path("page.html").write_text("<style>p {}</style><p>A &amp; B</p><svg></svg>")
    print("WORD", sys.argv[1:], sys.stdout.isatty(), os.environ.get("COLUMNS"), __file__)
    print(time.strftime("%Y-%m-%dT%H:%M:%S"), sys.modules["collbench"].__version__)
    sys.exit("wrong" in sys.argv and 2)
"""
GOLDENS = [Golden("table@80", ["table results"], 80), Golden("drawn", ["draw results"]), Golden("refused", ["wrong"])]


def compared(folder: Path, *words: str) -> int:
    """Return the exit status of comparing two programs that print these words."""
    trees = []
    for place, word in enumerate(words):
        tree = folder / f"{'tree' * (place + 1)}"
        (tree / "collbench").mkdir(parents=True)
        (tree / "results").mkdir()
        (tree / "collbench" / "__init__.py").write_text(f"__version__ = '0.{place}.dev'\n")
        (tree / "collbench" / "cli.py").write_text(PROGRAM.replace("WORD", word))
        trees.append(tree)
    write_both(trees, GOLDENS, folder, folder / "out")
    return compare(folder / "out")


def test_equal_trees_differ_in_nothing_although_paths_versions_and_times_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(tmp_path, "same", "same") == 0
    assert capsys.readouterr().out == f"0 of {len(GOLDENS)} outputs differ\n"
    texts = {golden.name: (tmp_path / "out" / SIDES[0] / f"{golden.name}.golden").read_text() for golden in GOLDENS}
    assert "['table', 'results'] True 80 SCRATCH/tree/collbench/cli.py\nTODAY VERSION\n" in texts["table@80"]
    assert "False" in texts["drawn"]
    assert "== page.html\nA & B\n1 figures" in texts["drawn"]
    assert "-- status 2" in texts["refused"]


def test_another_word_is_found_in_each_output_that_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(tmp_path, "before", "after") == 1
    shown = capsys.readouterr().out
    assert f"{len(GOLDENS)} of {len(GOLDENS)} outputs differ" in shown
    assert "-before ['wrong']" in shown
    assert "+after ['wrong']" in shown


def test_a_picture_is_its_texts_shapes_and_styles() -> None:
    picture = (
        '<svg xmlns="http://www.w3.org/2000/svg" id="{}"><!-- 8 B --><path id="{}" d="M 1.23 4.5" style="x"/></svg>'
    )
    assert svg_text(picture.format(1, 2)) == svg_text(picture.format(3, 4)) == "text 8 B\npath M 1.2 4.5 x"
