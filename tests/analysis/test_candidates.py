"""Where a run may have been measured: every system that fits its log judges it, and they must agree."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import collbench
from collbench.analysis.judgement import Word
from collbench.analysis.machine import RunFacts, candidates, fitting, sized
from collbench.commands.check.judge import CheckResult
from collbench.model.predict import curve
from collbench.results import Reported
from collbench.runfile.schema import Environment, ForeignTest, Header, ImportedPart, TopologyPart
from collbench.runfile.store import Run
from collbench.topology import files
from collbench.topology.system import System
from tests.conftest import case

TWO_NODES = [name for name in files.names() if (system := files.load(name)).nics and not system.is_rack]


def log(
    system: System,
    gpu: str = "",
    listed: int = 0,
    slower: float = 1.0,
    rounds: Sequence[float] = (),
    least: int = 3,
    **facts: str,
) -> Run:
    """A log of the system: what it takes by the model, or `slower` times that; `listed` of its ranks, 0: all.

    Rounds are so many times slower.
    """
    cases = [case(nbytes=2**power, ranks=system.ranks) for power in range(least, 34)]
    rows = [
        Reported(
            each.case,
            "nccl",
            "gpu",
            each.seconds * slower,
            "mean",
            0,
            rounds=tuple(each.seconds * times for times in rounds),
        )
        for each in curve(system, cases)
    ]
    topology = TopologyPart(
        platform="gpu",
        ranks=system.ranks,
        name=f"{system.ranks} x NVIDIA {gpu or system.gpu}" + f" on {system.nodes} nodes" * (not listed),
        nodes=0 if listed else system.nodes,
        listed=listed,
    )
    test = ForeignTest(tool="nccl-tests", sweep={"gpus": 1}, layout={"log": facts})
    header = Header(
        topology=topology,
        environment=Environment(host="n1", versions={"nccl": "2.29.7"}),
        imported=ImportedPart(tool="nccl-tests", tests=(test,)),
    )
    return Run(Path("run.jsonl"), header, tuple(rows), True, 0)


def checked(run: Run, **options: object) -> CheckResult:
    result = collbench.check(run=run, **options)  # type: ignore[arg-type]
    assert result
    return result


def test_of_no_system_a_healthy_log_is_slow_and_a_slow_one_ok() -> None:
    found: Mapping[float, list[Word]] = {1.0: [], 1.5: []}
    for name in TWO_NODES:
        for slower, words in found.items():
            words.append(checked(log(files.load(name).of(2), slower=slower)).word)
    assert set(found[1.0]) == {Word.OK, Word.UNKNOWN}
    assert set(found[1.5]) == {Word.SLOW, Word.UNKNOWN}
    for words, clear in zip(found.values(), (Word.OK, Word.SLOW), strict=True):
        assert words.count(clear) > len(words) / 2


def test_a_fast_round_refutes_a_system_for_the_slow_one() -> None:
    system = files.load("dgx-h100").of(2)
    for rounds, word in (((3.0, 3.0), Word.UNKNOWN), ((1.0, 3.0), Word.SLOW)):
        result = checked(log(system, rounds=rounds, least=27))
        assert result.word is word
        assert ("the first round was 3.0x faster" in result.line) is (word is Word.SLOW)


def test_systems_that_disagree_are_named() -> None:
    result = checked(log(files.load("gcp-a3-mega").of(2)))
    assert result.word is Word.UNKNOWN
    (curve_of_it,) = result.curves
    assert "slow as aws-p5, azure-nd-h100-v5, dgx-h100, 1 more, but not as gcp-a3-mega" in curve_of_it.remark
    assert curve_of_it.against.startswith("GCP a3-megagpu-8g, 2 nodes")


@pytest.mark.parametrize(
    ("facts", "left"),
    [
        ({}, {"aws-p5", "azure-nd-h100-v5", "dgx-h100", "gcp-a3-high", "gcp-a3-mega", "oci-h100"}),
        ({"transport": "NET/IB/GDRDMA, P2P/CUMEM"}, {"azure-nd-h100-v5", "dgx-h100", "oci-h100"}),
        ({"transport": "NET/AWS Libfabric/GDRDMA"}, {"aws-p5"}),
        ({"transport": "NET/FasTrak"}, {"gcp-a3-high", "gcp-a3-mega"}),
        (
            {"transport": "NET/Socket"},
            {"aws-p5", "azure-nd-h100-v5", "dgx-h100", "gcp-a3-high", "gcp-a3-mega", "oci-h100"},
        ),
        ({"cards": "0, 1, 2, 3, 4, 5, 6, 7"}, {"aws-p5", "azure-nd-h100-v5", "dgx-h100", "gcp-a3-mega", "oci-h100"}),
        ({"cards": "0"}, {"aws-p5", "azure-nd-h100-v5", "dgx-h100", "gcp-a3-high", "gcp-a3-mega", "oci-h100"}),
    ],
)
def test_what_nccl_logged_rules_systems_out_but_not_what_is_wrong_with_some(
    facts: dict[str, str], left: set[str]
) -> None:
    run = log(files.load("dgx-h100").of(2), **facts)
    found, _ = candidates(run, None, None, RunFacts.of(run, ""))
    assert {candidate.choice for candidate in found} == left


def test_a_log_that_rules_all_presets_out_is_unknown_and_says_so() -> None:
    result = checked(log(files.load("dgx-h100").of(2), cards=", ".join(map(str, range(40)))))
    assert result.word is Word.UNKNOWN
    assert "NCCL's log rules out every preset" in result.line


def test_presets_have_the_gpus_of_a_log_its_memory_and_room_for_its_ranks() -> None:
    for gpu, some, none in (
        ("A100-SXM4-40GB", "aws-p4d", "aws-p4de"),
        ("A100-SXM4-40GB", "dgx-a100", "hgx-a100-4"),
        ("H100 80GB HBM3", "dgx-h100", "h100-nvl"),
        ("H100 PCIe", "", "dgx-h100"),
        ("", "", "dgx-h100"),
    ):
        names = fitting(log(files.load("dgx-h100").of(2), gpu or "unknown GPU"))
        assert some in names or not (some or names), gpu
        assert none not in names, gpu


def test_gpus_of_another_kind_are_unknown_whichever_is_faster() -> None:
    for gpu, on, word in (
        ("A100-SXM4-80GB", "dgx-h100", Word.UNKNOWN),
        ("H100 80GB HBM3", "dgx-a100", Word.UNKNOWN),
        ("H100 PCIe", "dgx-h100", Word.UNKNOWN),
        ("A100-SXM4-80GB", "aws-p4d", Word.OK),  # of the same kind, with more memory
        ("A100-SXM4-40GB MIG 1g.5gb", "aws-p4d", Word.UNKNOWN),
        ("H100 80GB HBM3 + 8 x NVIDIA A100-SXM4-40GB", "aws-p4d", Word.UNKNOWN),
        ("Instinct MI300X (SPX)", "aws-p4d", Word.UNKNOWN),
        ("Graphics Device", "aws-p4d", Word.OK),
        ("Something New", "aws-p4d", Word.OK),
    ):
        for slower in (0.8, 1.0):
            result = checked(log(files.load("aws-p4d").of(2), gpu, slower=slower), on=on)
            assert result.word is word or (word is Word.OK and result.word is not Word.SLOW and slower < 1), (gpu, on)


def test_a_trimmed_list_leaves_a_word_that_does_not_depend_on_the_nodes() -> None:
    h100 = files.load("dgx-h100")
    for nodes, slower, word, held in (
        (2, 1.0, Word.OK, "2 nodes of 8 GPUs are assumed"),  # on more, fewer cards would carry more than they can
        (2, 1.6, Word.SLOW, "2 nodes of 8 GPUs are assumed"),
        (2, 40.0, Word.SLOW, "any of 2, 4, 8 and 16 nodes are assumed"),
        (4, 1.0, Word.UNKNOWN, "any of 2 and 4 nodes are assumed"),
    ):
        run = log(sized(h100, 16, nodes), listed=2, slower=slower)
        result = checked(run, on="dgx-h100")
        assert result.word is word, slower
        assert held in result.line
        assert ("slow as --nodes 2, but not as --nodes 4" in result.line) is (word is Word.UNKNOWN)
        assert checked(run, on="dgx-h100", nodes=nodes).word is (Word.OK if slower == 1 else Word.SLOW)
