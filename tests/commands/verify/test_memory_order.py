"""`collbench verify --races`: kernels of users and of the package, with and without mistakes."""

import re
from pathlib import Path

import pytest

from collbench.algorithms import implementations
from collbench.collectives import COLLECTIVES
from collbench.commands.verify import memory_order
from collbench.errors import Unsupported
from collbench.exits import BAD, REFUSED
from collbench.measure import races
from tests.conftest import ROOT, Command
from tools.kernels.streams import ALLREDUCES, OTHERS

RACES = ("verify", "--races")
RELAXED = (ROOT / "kernels" / "flags.cuh").read_text().replace("__ATOMIC_RELEASE", "__ATOMIC_RELAXED")


@pytest.mark.usefixtures("sanitizer")
@pytest.mark.timeout(300)
def test_relaxed_flags_of_a_users_kernel_are_found_and_a_right_kernel_is_clean(
    collbench: Command, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "kernels.md").read_text().partition("## Kernels of your own\n")[2]
    source, record = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[0] for kind in (r"c\+\+", "toml"))
    for name, text in {"mine": source, "text": "no kernel"}.items():
        (tmp_path / f"{name}.cu").write_text(text)
        (tmp_path / f"{name}.toml").write_text(record)
    given, variables = ("--impl", "mine,text,mpi,ring-host", "-g", "2"), {"COLLBENCH_KERNELS": str(tmp_path)}
    right = collbench(*RACES, *given, **variables)
    (tmp_path / "flags.cuh").write_text(RELAXED)
    relaxed = collbench(*RACES, *given, **variables)
    assert right.returncode == relaxed.returncode == BAD
    for done, word in ((right, "clean"), (relaxed, "RACE")):
        words = dict(re.findall(r"^(\w+) allreduce +(.*)$", done.stdout, re.MULTILINE))
        assert words == {"mine": word, "text": "NOT COMPILED"}
        assert "text.cu:1" in done.stdout
        untried = re.findall(r"^not tried: ([\w-]+), ", done.stdout, re.MULTILINE)
        assert untried == ["mpi", "ring-host"]
    (number, line), *_ = re.findall(r"reads: mine\.cu:(\d+): (.*)", relaxed.stdout)
    assert line == source.splitlines()[int(number) - 1].strip()
    assert "world.send" in line


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("sanitizer")
def test_the_packages_kernels_are_clean_until_a_header_in_the_folder_is_relaxed(here: Command, tmp_path: Path) -> None:
    done = here(*RACES)
    assert done.returncode == 0, done.stdout
    (tmp_path / "flags.cuh").write_text(RELAXED)
    done = here(*RACES, "--impl", "ring-flags,one-shot", "-q", COLLBENCH_KERNELS=str(tmp_path))
    assert done.returncode == 1, done.stdout
    assert {line.split()[-1] for line in done.stdout.splitlines() if line.startswith(("ring", "one"))} == {"RACE"}


@pytest.mark.usefixtures("sanitizer")
def test_every_kernel_of_the_harness_is_tried_and_every_other_implementation_has_a_reason() -> None:
    subjects, untried = memory_order.subjects(list(implementations()), list(COLLECTIVES))
    tried = {kernel for run, _ in subjects.values() for kernel in run(2).kernels}
    assert tried == races.kernels() == {*ALLREDUCES, *OTHERS, races.NARROW}
    names = {title.split()[0] for title in subjects}
    assert names | set().union(*untried.values()) == set(implementations())
    assert not names & set().union(*untried.values())


@pytest.mark.usefixtures("sanitizer")
def test_what_cannot_be_tried_is_refused_in_a_line(here: Command) -> None:
    for words, status, said in (
        ("--impl mpi", REFUSED, "library"),
        ("--op barrier --impl ring-flags", REFUSED, "no such collective"),
        ("-g 9", REFUSED, "2 to 8 ranks"),
        ("-d half", REFUSED, "--datatype"),
        ("--bits", REFUSED, "--bits"),
        ("--json -", REFUSED, "--json"),
    ):
        done = here(*RACES, *words.split())
        assert (done.returncode, done.stderr.count("\n")) == (status, 1), words
        assert said in done.stderr, words


def test_a_compiler_without_the_detector_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def launcher() -> None:
        raise races.NoSanitizer("cc has no ThreadSanitizer")

    monkeypatch.setattr(races, "launcher", launcher)
    with pytest.raises(Unsupported, match="cc has no ThreadSanitizer"):
        memory_order.subjects(["one-shot"], ["allreduce"])
