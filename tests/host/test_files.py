"""One way to write a file: no link is written through, a reader never meets half of it, no module has another way."""

import ast
import os
import stat
from pathlib import Path

import pytest

from collbench.host.files import replace_whole, try_to_write
from tests.conftest import ROOT, Command
from tests.layers import modules, tree

RUN = str(ROOT / "results" / "cpu-2-ranks")
OUTPUTS = (
    *(f"check {RUN} --{name}=@" for name in ("json", "junit")),
    *(f"compare {RUN} {RUN} --{name}=@" for name in ("json", "csv")),
    *(f"scan --on dgx-h100 --{name}=@" for name in ("json", "junit", "metrics", "exclude-file")),
    *(f"export {RUN} --to csv -o @", f"report {RUN} -o @.html", f"plot {RUN} --view latency -o @.svg"),
)
"""Command lines that write a file where `@` is."""
ELSEWHERE = {
    "platforms.compiler": "sources, in a folder of its own",
    "measure.races": "sources, in a folder of its own",
    "commands.lesson.breaks": "sources, in a folder of its own",
    "measure.protocol": "a page in the folder of a run",
    "measure.supervisor": "what ranks print, in the folder of a run",
    "runfile.store": "what is rescued, in a new folder",
}
"""Modules that write by themselves, and what."""


@pytest.mark.parametrize("words", OUTPUTS)
def test_no_option_writes_through_a_link(words: str, here: Command, tmp_path: Path) -> None:
    for name, target in (("precious", "mine"), ("empty", ""), ("nowhere", None)):
        if target is not None:
            (tmp_path / name).write_text(target)
        given = words.replace("@", f"link-{name}").split()
        place = given[-1].rpartition("=")[2]
        (tmp_path / place).symlink_to(name)
        done = here(*given)
        assert done.returncode in (1, 2), done.stdout
        assert f"{place} is a link, and is not written through" in done.stderr
        assert done.stderr.count("collbench: error: ") == 1
        assert (tmp_path / name).exists() is (target is not None)
        assert target is None or (tmp_path / name).read_text() == target
    assert sorted(path.name for path in tmp_path.iterdir() if not path.is_symlink()) == ["empty", "precious"]


def test_a_file_takes_the_place_of_the_one_before_with_its_mode(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("before")
    place.chmod(0o640)
    with place.open() as reader:
        replace_whole(place, "behind")
        assert reader.read() == "before", "who reads it has it whole"
    assert (place.read_text(), stat.S_IMODE(place.stat().st_mode)) == ("behind", 0o640)
    replace_whole(place, b"", 0o644)
    assert (place.read_bytes(), stat.S_IMODE(place.stat().st_mode)) == (b"", 0o644)
    assert list(tmp_path.iterdir()) == [place]


def test_a_pipe_is_written_to_and_an_open_file_of_the_system_too(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    for place in (f"/dev/fd/{writing}", f"/proc/self/fd/{writing}"):
        try_to_write(Path(place))
        replace_whole(Path(place), "words")
        assert os.read(reading, 100) == b"words"
    with (tmp_path / "redirected").open("wb", buffering=0) as file:
        file.write(b"before ")
        replace_whole(Path(f"/dev/fd/{file.fileno()}"), "words")
        file.write(b" behind")
    assert (tmp_path / "redirected").read_text() == "before words behind"
    os.close(reading)
    os.close(writing)


def test_no_option_writes_over_a_run(here: Command, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes((Path(RUN) / "run.jsonl").read_bytes())
    for words in ("compare . . --json", "check . --junit", "export . --to csv -o"):
        done = here(*words.split(), "run.jsonl")
        assert done.returncode in (1, 2)
        assert "run.jsonl: it is a run file, and is not written over" in done.stderr
    assert (tmp_path / "run.jsonl").read_bytes() == (Path(RUN) / "run.jsonl").read_bytes()


def test_what_cannot_be_written_leaves_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "file"
    place.write_text("before")
    try_to_write(place)
    try_to_write(tmp_path / "new")

    def full(*words: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(OSError, match="No space"):
        replace_whole(place, "behind")
    assert (list(tmp_path.iterdir()), place.read_text()) == ([place], "before")
    for path in (tmp_path, tmp_path / "nowhere" / "x"):
        for act in (try_to_write, lambda path: replace_whole(path, "")):
            with pytest.raises(OSError, match="directory"):
                act(path)


def test_a_folder_that_takes_no_file_may_hold_one_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, opened = tmp_path / "file", os.open
    place.write_text("before")

    def sealed(path: Path, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", sealed)
    replace_whole(place, "b")
    assert place.read_text() == "b"


def test_no_module_has_a_way_of_its_own_to_write() -> None:
    found = set()
    for name, path in modules().items():
        for call in ast.walk(tree(path)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                modes = [word.value for word in call.args[:1] if isinstance(word, ast.Constant)]
                opens = call.func.attr == "open" and any(set(str(mode)) & set("wax+") for mode in modes)
                if opens or call.func.attr in ("write_text", "write_bytes"):
                    found.add(name)
    assert found == {*ELSEWHERE, "host.files"}
