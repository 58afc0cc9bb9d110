"""What a model answers begins with a mark, and its JSON has it: nothing was measured."""

import json

import pytest

from tests.conftest import Command

FEW = "-b 1M -e 1M --no-plot"
TITLE = "DGX H100, 2 nodes of 8 GPUs"
LAUNCH = "operations launched one by one, NCCL 2.29"
ANSWERS = {  # what is assumed, by the words that ask for it; None: nothing is
    f"predict dgx-h100 --nodes 2 {FEW}": LAUNCH,
    f"predict dgx-h100 --nodes 2 --graph {FEW}": "operations replayed from a CUDA graph, NCCL 2.29",
    f"predict dgx-h100 --nodes 2 {FEW} -q": None,
    f"sweep --on dgx-h100 --nodes 2 {FEW}": LAUNCH,
    f"sweep --on dgx-h100 --nodes 2 {FEW} -q": None,
    "topo dgx-h100 --nodes 2": None,
    "train --gpus 16": f"llama3-8b, 512 samples a step, bf16, adam, {LAUNCH}",
    "train --on dgx-h100 --gpus 16 --model 8b --batch 64 --precision bf16 --optimiser adam": LAUNCH,
    "step scale --on dgx-h100 --ranks 8,16": f"100 ms of computing a step, 1 GiB of gradients, {LAUNCH}",
    "step scale --on dgx-h100 --ranks 8,16 --compute 9ms": f"1 GiB of gradients, {LAUNCH}",
    "step overlap --on dgx-h100 --ranks 16 --gradients 1M": f"100 ms of computing a step, {LAUNCH}",
    "scan --on dgx-h100 --nodes 8": LAUNCH,
    "scan --on dgx-h100 --nodes 8 -q": None,
}


@pytest.mark.parametrize("words", ANSWERS)
def test_an_answer_of_a_model_begins_with_the_mark_and_with_what_was_assumed(here: Command, words: str) -> None:
    done = here(*words.split())
    assert done.returncode == 0, done.stderr
    mark, second, *_ = done.stdout.splitlines()
    title = TITLE.replace("2", "8", 1) if "nodes 8" in words else TITLE
    assert mark == f"model of {title}: nothing was measured"
    assert second == f"assumed: {ANSWERS[words]}" if ANSWERS[words] else not second.startswith("assumed")
    assert (done.stdout + done.stderr).count("nothing was measured") == 1


@pytest.mark.parametrize("words", [words for words in ANSWERS if words.split()[0] not in ("train", "step")])
def test_json_has_the_mark_at_its_top_and_standard_output_has_no_other(here: Command, words: str) -> None:
    assert json.loads(here(*words.split(), "--json", "-").stdout)["measured"] is False


def test_several_systems_have_one_mark(here: Command) -> None:
    words = ("predict", "dgx-h100,dgx-a100", "-b", "1M", "-e", "1M")
    assert here(*words).stdout.startswith("model of dgx-h100 and dgx-a100: nothing was measured\nanswer: ")
    assert json.loads(here(*words, "--json", "-").stdout)["measured"] is False
    assert here(*words, "--csv", "-").stdout.startswith("collective,")


def test_what_ranks_measured_is_marked_as_measured(here: Command) -> None:
    done = here("sweep", "--on", "cpu", "--ranks", "2", "--impl", "mpi", "-e", "8", "-n", "3", "--json", "-")
    answer = json.loads(done.stdout)
    assert (answer["measured"], answer["assumed"]) == (True, [])
    assert "nothing was measured" not in done.stderr
