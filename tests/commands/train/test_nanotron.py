"""Hundreds of layouts of one framework on 1 to 64 nodes: what the planner would choose, and the memory it expects."""

from statistics import median

import numpy as np

from tools.training.nanotron import groups, reached, runs


def test_the_first_choice_reaches_nine_tenths_of_the_best_layout() -> None:
    """On 64 nodes it does not."""
    shares = {(model, nodes): reached(found) for model, nodes, found in groups()}
    assert {nodes for _, nodes in shares} == {1, 2, 4, 8, 16, 32, 64}
    for (model, nodes), share in shares.items():
        assert share >= 0.9 or nodes == 64, (model, nodes)


def test_what_ran_should_fit_and_memory_is_met() -> None:
    """Without what is held back, since nobody uses it."""
    ran = [run for run in runs() if np.isfinite(run.measured)]
    assert len(ran) == 709
    assert sum(not run.fits for run in ran) <= 12
    used = [run.planned.needed - run.planned.memory["fragments"] for run in ran]
    assert 0.9 < median(need / run.memory for need, run in zip(used, ran, strict=True)) < 1.1
    crashed = [run for run in runs() if not np.isfinite(run.measured)]
    refused = [sum(not run.fits for run in some) / len(some) for some in (ran, crashed)]
    assert refused[1] > 10 * refused[0], "what does not fit crashed, as a rule"


def test_steps_are_met_with_tensor_parallelism_in_a_node_and_without() -> None:
    """Up to 8 nodes; planned steps are a little short, as everything that goes wrong makes a step longer."""
    ran = [run for run in runs() if np.isfinite(run.measured) and run.nodes <= 8]
    without, inside = ([run for run in ran if run.layout.tensor in sizes] for sizes in ((1,), (2, 4, 8)))
    for some in (without, inside):
        assert 0.8 < median(run.planned.typical / run.measured for run in some) < 1
