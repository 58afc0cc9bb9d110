"""One word for many cases."""

from collbench.analysis.conformance import Conformance, table
from collbench.flaws import Mismatch
from collbench.measurement import Failed, Skipped
from tests.conftest import case, measurement


def gathered(*results: object) -> Conformance:
    """A conformance with these results in it."""
    conformance = Conformance()
    for result in results:
        conformance.add(result)  # type: ignore[arg-type]
    return conformance


def test_the_worst_outcome_is_what_a_cell_says_and_what_was_never_tried_is_missing() -> None:
    right = measurement()
    wrong = type(right)(**{**right.__dict__, "mismatch": Mismatch(0, 0, 0, "1", "2", 1)})
    conformance = gathered(right, wrong, right, Skipped(case(), "mpi", "cpu", "no way"))
    assert conformance.word(("mpi", "allreduce"), "float") == "WRONG"
    assert conformance.bad == [wrong]
    assert gathered(right, Failed(case(), "mpi", "cpu", "died")).word(("mpi", "allreduce"), "float") == "FAILED"
    conformance = gathered(measurement(), Skipped(case(in_place=True), "mpi", "cpu", "no way"))
    assert conformance.word(("mpi", "allreduce"), "float") == "ok/skip"
    assert conformance.reasons == {"mpi": {"no way"}}
    assert gathered(Skipped(case(), "mpi", "cpu", "no")).word(("mpi", "allreduce"), "float") == "skip"
    lines = table(gathered(measurement()), ["float", "half"])
    assert lines[1].split() == ["mpi", "allreduce", "ok", "missing"]
