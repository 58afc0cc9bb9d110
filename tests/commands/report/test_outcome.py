"""A report begins with a word: of the results, and of the speed against what the model expects."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import collbench
from collbench.analysis.reasons import HYPOTHESES
from collbench.commands.report import command as reports
from collbench.commands.report.command import command
from collbench.errors import Notice, UsageError
from collbench.present.page import templates
from collbench.results import Failed, Prediction, Reported, Result
from collbench.runfile.store import read
from tests.commands.formats.goldens import DATA
from tests.commands.report.pages import Text, built, data_of, times, write
from tests.conftest import case

EXPECTED = {row.case.nbytes: row.typical for row in collbench.predict("dgx-h100", maxbytes="1G").results}
ON = "dgx-h100"


def curve(factor: float = 1.0, wrong: int | None = 0, ranks: int = 8) -> list[Result]:
    """A log of NCCL on the GPUs of one node, so many times slower than expected; `wrong` elements, None: unchecked."""
    return [
        Reported(case(nbytes=size, ranks=ranks), "nccl", "gpu", factor * seconds, "mean", wrong_elements=wrong)
        for size, seconds in EXPECTED.items()
    ]


def outcome(page: str) -> list[tuple[str, str]]:
    top = page[: page.index("<main>")]
    return re.findall(r'<span class="word \w+">(\w+)</span> <strong>(\w+):</strong>', top)


OUTCOMES: dict[str, tuple[list[Result], str | None, dict[str, str], str]] = {
    "fast": (curve(), ON, {"Results": "OK", "Speed": "OK"}, "8 ranks, against DGX H100, 8 GPUs)"),
    "ratio": (
        curve(1.04),
        ON,
        {"Results": "OK", "Speed": "OK"},
        "typically 1.04x the expected time; would notice ",
    ),
    "slow": (curve(4.0), ON, {"Results": "OK", "Speed": "SLOW"}, "the usual time of such machines"),
    "wrong": ([*curve(), *curve(wrong=3)[:1]], ON, {"Results": "WRONG", "Speed": "OK"}, "WRONG: 3 elements"),
    "failed": (
        [*curve(), Failed(case(nbytes=3, ranks=8), "nccl", "gpu", "a rank died")],
        ON,
        {"Results": "WRONG", "Speed": "OK"},
        "a rank died",
    ),
    "unchecked": (curve(wrong=None), ON, {"Results": "UNKNOWN", "Speed": "OK"}, "none of them checked"),
    "no system": (curve(), None, {"Results": "OK", "Speed": "UNKNOWN"}, "not judged: "),
    "cpu": ([*times(1e-6, 1e9, "mpi")], None, {"Results": "OK", "Speed": "UNKNOWN"}, "not judged: "),
    "predicted": (
        [Prediction(case(nbytes=8), "nccl", 1e-5, 9e-6, 2e-5)],
        None,
        {"Results": "UNKNOWN"},
        "nothing was measured",
    ),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_the_page_begins_with_a_word_and_a_sentence_that_says_why(name: str, tmp_path: Path) -> None:
    rows, on, words, sentence = OUTCOMES[name]
    page = reports.build([read(write(tmp_path / "run", *rows))], on)
    assert {subject: word for word, subject in outcome(page)} == words
    assert sentence in Text(page).text
    assert ('<span class="verdict slow">SLOW</span>' in page) is (name == "slow")


def test_a_run_that_was_cut_off_or_interrupted_has_not_passed_and_is_called_partial(tmp_path: Path) -> None:
    whole, cut, stopped = (write(tmp_path / name, *curve()) for name in ("whole", "cut", "stopped"))
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:-1]))
    stopped.write_text(stopped.read_text().replace('"status":0', '"status":130'))
    log = write(tmp_path / "log", *curve(), header={"imported": {"tool": "nccl-tests", "complete": False}})
    assert "partial" not in Text(built(whole)).text
    for place, words in (
        (cut, "the run was cut off"),
        (stopped, "the run was interrupted"),
        (log, "the log was cut off"),
    ):
        assert f'<span class="status partial">partial: {words}</span>' in built(place)
    page = built(cut)
    assert ("UNKNOWN", "Results") in outcome(page)
    assert "cut off after" in Text(page).text


def test_the_speed_on_top_is_the_verdict_of_diagnose(tmp_path: Path) -> None:
    of_no_bytes = Reported(case(nbytes=0, ranks=8), "nccl", "gpu", 1e-6, "mean", wrong_elements=0)
    for factor in (0.3, 1.0, 1.5, 6.0):
        run = read(write(tmp_path / str(factor), of_no_bytes, *curve(factor)))
        assert (collbench.check(run=run, on=ON).word.value, "Speed") in outcome(reports.build([run], ON)), factor


def test_the_band_that_the_model_expects_is_drawn_beside_each_measured_curve(tmp_path: Path) -> None:
    run = read(write(tmp_path / "run", *curve(2.0)))
    (judged,) = collbench.check(run=run, on=ON).curves
    (figure,) = data_of(reports.build([run], ON))["figures"]  # type: ignore[misc]
    measured, expected = figure["lines"]
    assert (measured["expected"], expected["expected"]) == (False, True)
    assert measured["name"] == expected["name"] == "nccl"
    assert expected["sizes"] == measured["sizes"]
    assert expected["low"] == pytest.approx(
        [size.expected * size.judgement.usual[0] for size in judged.sizes], rel=1e-3
    )
    assert expected["high"] == pytest.approx(
        [size.expected * size.judgement.usual[1] for size in judged.sizes], rel=1e-3
    )
    (alone,) = data_of(built(tmp_path / "run"))["figures"]  # type: ignore[misc]
    assert len(alone["lines"]) == 1, "nothing is expected without a system"


def test_headings_have_the_nodes_and_gpus_that_the_ranks_were_held_against(tmp_path: Path) -> None:
    log = {"imported": {"tests": [{"tool": "nccl-tests"}]}, "environment": {"host": "unknown"}}
    header = {"topology": {"name": "16 x unknown GPU", "ranks": 16}, **log}
    place = write(tmp_path / "run", *curve(ranks=16), header=header)
    usual, stated = (reports.build([read(place)], ON, nodes) for nodes in (None, 4))
    for page, words in ((usual, "2 nodes of 8 GPUs"), (stated, "4 nodes of 4 GPUs")):
        assert f"16 ranks, against DGX H100, {words}" in Text(page).text
        assert "DGX H100, 8 GPUs" not in Text(page).text
    assert ["give --nodes N" in page[: page.index("<main>")] for page in (usual, stated)] == [True, False]
    heading = re.compile("<h1>(.*?)</h1>")
    assert heading.findall(stated) == ["allreduce: 16 x unknown GPU, 4 nodes of 4 GPUs"]
    assert heading.findall(usual) == ["allreduce: 16 x unknown GPU"], "what is supposed is no heading"
    plan = collbench.train(gpus=32, out=tmp_path / "plan").run()
    assert heading.findall(reports.build([plan])) == ["training plan: llama3-8b on DGX H100, 4 nodes of 8 GPUs"]


def test_an_imported_log_is_held_against_the_system_and_nodes_that_the_user_names(tmp_path: Path) -> None:
    with pytest.warns(Notice, match="trimmed"):
        (run,) = collbench.import_(DATA / "nccl_tests_trimmed_ranks.txt", out=tmp_path / "log")
    done = CliRunner().invoke(command, [str(run.path), "--on", "dgx-a100", "--nodes", "2"])
    assert done.exit_code == 0, done.output
    page = Path(done.output.strip()).read_text()
    assert outcome(page) == [("OK", "Results"), ("UNKNOWN", "Speed")], "its largest message is small"
    assert "against DGX A100, 2 nodes of 8 GPUs" in Text(page).text
    with pytest.raises(UsageError, match="cannot be spread evenly over 3 nodes"):
        collbench.report(run, on="dgx-a100", nodes=3)


def test_no_back_tick_reaches_the_reader_and_commands_are_shown_as_code(tmp_path: Path) -> None:
    named = [replace(row, implementation=name) for name in ("a`b`c", "`", "nccl") for row in curve(4.0)]
    header = {"topology": {"name": "`x` and `", "ranks": 8}, "environment": {"host": "`h`"}, "command": ["`", "a"]}
    page = reports.build([read(write(tmp_path / "run", *named, header=header))], ON)
    assert "`" not in Text(page).text
    assert not [text for _, attributes in Text(page).elements for text in attributes.values() if "`" in (text or "")]
    assert "`" not in str(data_of(page))
    assert "<code>h</code>" in page
    advice = templates("collbench.commands.report", "templates").from_string("{{ text }}")
    for hypothesis in HYPOTHESES:
        shown = advice.render(text=f"{hypothesis.fix} <b>")
        assert "`" not in shown
        assert shown.count("<code>") == hypothesis.fix.count("`") // 2
        assert "<b>" not in shown
