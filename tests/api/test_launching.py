"""Commands that start ranks, on made-up machines: launchers that say whose they are, and batch systems' variables."""

import importlib.util
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.api import launching
from collbench.api.launching import LAUNCHERS, Job, choices, commands, hosts_of, job_of
from collbench.errors import UsageError
from collbench.platforms.cpu.mpi_libraries import KINDS
from collbench.topology.discovered import Gpu, Topology
from tests.platforms.cpu import test_libraries as made_up

TWO = {"node1": 4, "node2": 4}
NEAR = (0, 0, 1, 1)  # NUMA nodes of four GPUs
CPUS = {0: "0-1", 1: "2-3"}  # of these
NCCL = {"NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "3", "HOME": "/root"}
SLURM = {"SLURM_JOB_ID": "7", "SLURM_TASKS_PER_NODE": "4(x2)"}
MPI_TYPES = "MPI plugin types are...\n\tnone\n\tpmix\n\tpmi2"

SRUN = "--nodes=2 --ntasks=8 --ntasks-per-node=4 --nodelist=node1,node2 --mpi=pmi2"
TOLD = {  # on two hosts with four ranks each: on any core, near their GPUs, and with one rank more on the second host
    "srun": (
        f"{SRUN} --cpu-bind=none --export=ALL",
        f"{SRUN} --cpu-bind=map_ldom:0,0,1,1 --export=ALL",
        "--nodes=2 --ntasks=9 --nodelist=node1,node2 --mpi=pmi2 --cpu-bind=none --export=ALL",
    ),
    "mpich": (
        "-n 8 -hosts node1:4,node2:4 -ppn 4 -bind-to none -genvall",
        "-n 8 -hosts node1:4,node2:4 -ppn 4 -bind-to user:0+1,0+1,2+3,2+3 -genvall",
        "-n 9 -hosts node1:4,node2:5 -bind-to none -genvall",
    ),
    "openmpi": (
        "-n 8 --host node1:4,node2:4 --map-by ppr:4:node --bind-to none -x NCCL_ALGO",
        "-n 8 --host node1:4,node2:4 --map-by ppr:2:numa --bind-to numa -x NCCL_ALGO",
        "-n 9 --host node1:4,node2:5 --map-by slot --bind-to none -x NCCL_ALGO",
    ),
    "intel": (
        "-n 8 -hosts node1,node2 -ppn 4 -genv I_MPI_PIN off -genvall",
        "-n 8 -hosts node1,node2 -ppn 4 -genv I_MPI_PIN off -genvall",
        "",
    ),
    "cray": (
        "-n 8 --hosts node1,node2 --ppn 4 --cpu-bind none --envall",
        "-n 8 --hosts node1,node2 --ppn 4 --cpu-bind list:0-1:0-1:2-3:2-3 --envall",
        "",
    ),
    "torchrun": (
        "--nnodes 2 --nproc-per-node 4 --rdzv-id collbench --rdzv-backend c10d --rdzv-endpoint node1:29400 --no-python",
        "--nnodes 2 --nproc-per-node 4 --rdzv-id collbench --rdzv-backend c10d --rdzv-endpoint node1:29400 --no-python",
        "",
    ),
}
TOLD["mvapich"] = TOLD["mpich"]


def program(folder: Path, name: str, says: str = "") -> Path:
    """A launcher that says this, whatever it is asked."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Path]:
    """Every launcher on a machine of two NUMA nodes, each in its folder, without torch; programs by launcher."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "bin" / "python"))
    monkeypatch.setitem(made_up.SAYS, "cray", "PALS mpiexec version 1.3.4")
    monkeypatch.setitem(made_up.MARKS, "cray", b"\0CRAY MPICH version %s\0")
    monkeypatch.setitem(made_up.PLACES, "cray", "lib")
    programs = {"srun": program(tmp_path / "slurm", "srun", MPI_TYPES), "torchrun": program(tmp_path / "t", "torchrun")}
    for key, kind in KINDS.items():
        programs[key] = made_up.install(tmp_path / key, key) / "bin" / kind.launchers[0]
    cpus = {f"/sys/devices/system/node/node{node}/cpulist": text for node, text in CPUS.items()}
    read = launching.read_text
    monkeypatch.setattr(launching, "read_text", lambda path: cpus.get(str(path)) or read(path))
    absent = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else absent(name, *rest)
    )
    return programs


def on_path(programs: Mapping[str, Path], **more: str) -> dict[str, str]:
    return {"PATH": ":".join(str(file.parent) for file in programs.values()), **NCCL, **more}


def test_each_launcher_is_told_hosts_ranks_cores_and_variables_in_its_words(machine: dict[str, Path]) -> None:
    """Root or not, and with nothing of a program or of this host's GPUs that other hosts would misunderstand."""
    assert set(TOLD) == set(LAUNCHERS)
    environment = on_path(machine, **SLURM) | dict(KINDS["openmpi"].environment)
    uneven = {"node1": 4, "node2": 5}
    for places, numas, which in ((TWO, (), 0), (TWO, NEAR, 1), (uneven, (), 2)):
        job = Job(("collbench", "sweep"), tuple(places.values()), tuple(places), environment, numas)
        for name, made in commands(job, LAUNCHERS).items():
            told = TOLD[name][which]
            rest = "collbench sweep --rendezvous ./" if name == "torchrun" else "collbench sweep"
            assert shlex.join(made.words) == (f"{machine[name]} {told} {rest}" if told else ""), (name, which)
            assert made.why, name
            assert ("near its GPU" in made.why) == (which == 1 and told != TOLD[name][0]), name


def test_on_this_machine_alone_no_network_is_asked_for(machine: dict[str, Path]) -> None:
    job = Job(("collbench",), (2,), ("localhost",), environment=on_path(machine) | dict(KINDS["openmpi"].environment))
    made = {name: shlex.join(found.words) for name, found in commands(job, LAUNCHERS).items()}
    hydra = "-n 2 -launcher fork -rmk user -hosts localhost -ppn 2"
    assert made["mpich"] == f"{machine['mpich']} {hydra} -bind-to none -genvall collbench"
    assert made["intel"] == f"{machine['intel']} {hydra} -genv I_MPI_PIN off -genvall collbench"
    local = "-n 2 --host localhost:2 --map-by ppr:2:node --bind-to none"
    assert made["openmpi"] == f"{machine['openmpi']} {local} collbench"
    alone = "--nnodes 1 --nproc-per-node 2 --standalone --no-python"
    assert made["torchrun"] == f"{machine['torchrun']} {alone} collbench --rendezvous ./"
    assert made["srun"] == ""


def test_gpus_that_do_not_lie_in_the_order_of_ranks_are_left_to_launchers_with_lists(machine: dict[str, Path]) -> None:
    """Open MPI fills NUMA nodes in their order, so there ranks would be far from their GPUs."""
    environment = on_path(machine, **SLURM)
    for numas, orderly in (((1, 1, 0, 0), False), ((0, 0, 0, 1), False), ((0, 1, 0, 1), False), ((0, 0, 1, 1), True)):
        job = Job(("collbench",), (4, 4), ("a", "b"), environment, numas)
        made = {name: found.words for name, found in commands(job, LAUNCHERS).items()}
        assert f"--cpu-bind=map_ldom:{','.join(map(str, numas))}" in made["srun"], numas
        assert f"list:{':'.join(CPUS[numa] for numa in numas)}" in made["cray"], numas
        assert ("numa" in made["openmpi"]) == orderly, numas


def test_srun_gets_the_pmi_that_the_mpi_library_knows_and_without_any_a_folder_to_meet_in(
    machine: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless torch is there to meet by."""
    for key, types, pmi in (
        ("mpich", MPI_TYPES, "pmi2"),
        ("mpich", "MPI plugin types are...\n\tpmix", "pmix"),
        ("openmpi", MPI_TYPES, "pmix"),
        ("cray", "cray_shasta pmi2", "cray_shasta"),
        ("mpich", "MPI plugin types are...\n\tnone", "none"),
        ("openmpi", "", "none"),
    ):
        srun = program(machine["srun"].parent, "srun", types)
        made_up.install(machine[key].parent.parent, key, "mpiexec")
        environment = on_path({"srun": srun, key: machine[key]}, **SLURM)
        job = Job(("collbench", "sweep"), (4, 4), (), environment=environment)
        words = commands(job, ["srun"])["srun"].words
        assert f"--mpi={pmi}" in words, (key, types)
        assert (words[-2:] == ["--rendezvous", "./"]) == (pmi == "none"), (key, types)
        named = replace(job, program=("collbench", "sweep", "--rendezvous", "/shared"))
        assert commands(named, ["srun"])["srun"].words[-1] == "/shared"
    bare = replace(job, environment={"PATH": str(srun.parent), "CRAY_MPICH_DIR": "/opt/cray", **SLURM})
    program(srun.parent, "srun", "pmi2 cray_shasta")
    assert "--mpi=cray_shasta" in commands(bare, ["srun"])["srun"].words
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    program(srun.parent, "srun", "none")
    assert commands(job, ["srun"])["srun"].words[-1] == "sweep"


def test_a_launcher_that_cannot_be_used_says_why(machine: dict[str, Path]) -> None:
    nothing = Job(("collbench",), (4, 4), (), environment={"PATH": "/nowhere"})
    for name, made in commands(nothing, LAUNCHERS).items():
        assert not made.words, name
        assert "\n" not in made.why
    reasons = {name: made.why for name, made in commands(nothing, LAUNCHERS).items()}
    assert reasons["srun"] == "no srun on the PATH"
    assert reasons["torchrun"].startswith("no torch here")
    assert "I_MPI_ROOT" in reasons["intel"]
    here = replace(nothing, environment=on_path(machine))
    assert "SLURM_JOB_ID" in commands(here, ["srun"])["srun"].why
    assert "--hosts" in commands(here, ["torchrun"])["torchrun"].why
    assert "--ranks-per-node" in commands(replace(here, counts=(4, 3)), ["intel"])["intel"].why


def test_as_root_open_mpi_is_allowed_to_start_and_what_the_user_set_stays(
    machine: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    job = Job(("collbench",), (2,), ("localhost",), environment=on_path(machine))
    for user, start in ((0, f"env {allowed} {machine['openmpi']} -n"), (1000, f"{machine['openmpi']} -n")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert shlex.join(commands(job, ["openmpi"])["openmpi"].words).startswith(start), user


def test_auto_prefers_slurm_then_the_library_that_ranks_load(machine: dict[str, Path]) -> None:
    for key in ("openmpi", "mpich"):
        made_up.install(machine[key].parent.parent, key, "mpiexec")
        first, second, *others = choices("auto", {"PATH": str(machine[key].parent)})
        assert (first, second) == ("srun", key)
        assert {first, second, *others} == set(LAUNCHERS)
        assert choices("mpirun", {"PATH": str(machine[key].parent)}) == [key]
    for word, name in (("impi", "intel"), ("ompi", "openmpi"), ("pals", "cray"), ("srun", "srun")):
        assert choices(word, {"PATH": str(machine["mpich"].parent)}) == [name], word
    with pytest.raises(UsageError, match=r"unknown launcher 'qrsh'; choose from: auto, mpirun, srun, .*torchrun"):
        choices("qrsh", {"PATH": str(machine["mpich"].parent)})


def test_both_dialects_of_host_files_are_read() -> None:
    for lines, hosts in (
        (
            ["node1 slots=8", "node2  max-slots=8 slots = 4", "node3:2 binding=numa"],
            {"node1": 8, "node2": 4, "node3": 2},
        ),
        (["node1:8", "node2:4"], {"node1": 8, "node2": 4}),
        (["# a comment", "", "node1  # another", "10.0.0.1"], {"node1": None, "10.0.0.1": None}),
        (["a", "a", "b", "a", "b"], {"a": 3, "b": 2}),
        (["a:2", "b", "a:3"], {"a": 5, "b": None}),
        (["[fe80::1]:2"], {"[fe80::1]": 2}),
    ):
        assert hosts_of(lines) == hosts, lines
    for wrong in ("node1:many", "node1:", ":8", "node1:4:4", "node1 node2", "-x", "node1:9999999"):
        with pytest.raises(UsageError, match="is no host; write node, node:8 or node slots=8"):
            hosts_of([wrong])


def test_hosts_are_those_that_are_named_or_of_the_batch_system_or_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("node1\nnode1\nnode1\nnode2\nnode2\nnode2\n")
    pbs, lsf = {"PBS_NODEFILE": str(file)}, {"LSB_DJOB_HOSTFILE": str(file), "LSB_HOSTS": "else where"}
    for environment, given, places in (
        ({}, {}, {"localhost": 2}),
        ({}, {"ranks": 5}, {"localhost": 5}),
        ({}, {"hosts": ["a", "b:8"]}, {"a": 2, "b": 8}),
        ({}, {"hosts": ["a", "b:8"], "per_node": 3}, {"a": 3, "b": 3}),
        ({}, {"hosts": ["a", "b"], "ranks": 5}, {"a": 3, "b": 2}),
        (pbs, {}, {"node1": 3, "node2": 3}),
        (pbs, {"per_node": 1}, {"node1": 1, "node2": 1}),
        (lsf, {}, {"node1": 3, "node2": 3}),
        ({"LSB_HOSTS": "x x y"}, {}, {"x": 2, "y": 2}),
        (pbs, {"hosts": ["a:1"]}, {"a": 1}),
    ):
        job = job_of(["collbench"], "cpu", environment=environment, **given)  # type: ignore[arg-type]
        assert dict(zip(job.names, job.counts, strict=True)) == places, (environment, given)


def test_slurm_says_how_many_nodes_and_ranks_and_alone_knows_their_names() -> None:
    for tasks, on, more, counts in (
        ("4(x2),3", "cpu", {}, (4, 4, 3)),
        ("1(x2)", "cpu", {"SLURM_GPUS_ON_NODE": "8"}, (1, 1)),
        ("1(x2)", "auto", {"SLURM_GPUS_ON_NODE": "8"}, (8, 8)),
        ("64", "cpu", {}, (64,)),
    ):
        environment = {"SLURM_JOB_ID": "1", "SLURM_TASKS_PER_NODE": tasks, **more}
        job = job_of(["collbench"], on, environment=environment)
        assert (job.names, job.counts) == ((), counts), (tasks, more)


def test_hosts_have_a_rank_for_each_gpu_seen_here_whatever_slots_the_batch_system_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two share the only GPU of the only host, since one rank has no peer."""
    (tmp_path / "nodes").write_text("x\nx\nx\ny\ny\ny\n")
    pbs, kind = {"PBS_NODEFILE": str(tmp_path / "nodes")}, launching.find_platform("gpu")
    slurm = {"SLURM_JOB_ID": "1", "SLURM_TASKS_PER_NODE": "1(x2)"}
    for numas, environment, hosts, counts, near in (
        ((0, 0, 1, 1), {}, ["a", "b"], (4, 4), NEAR),
        ((0, 0, 1, 1), {}, [], (4,), NEAR),
        ((0, 0, 1, 1), pbs, [], (4, 4), NEAR),
        ((0, 0, 1, 1), slurm, [], (4, 4), NEAR),
        ((0, 0, 1, 1), {}, ["a:2", "b:2"], (2, 2), ()),
        ((0, None), {}, ["a", "b"], (2, 2), ()),
        ((0,), {}, ["a", "b"], (1, 1), (0,)),
        ((0,), {}, [], (2,), ()),
    ):
        found = Topology("gpu", len(numas), tuple(Gpu("GPU", numa=numa) for numa in numas))
        here = replace(
            kind,
            discover=lambda ranks, found=found: (found, ""),
            default_ranks=lambda found=found: max(2, len(found.gpus)),
            available=lambda: True,
        )
        monkeypatch.setattr(launching, "find_platform", lambda name, here=here: here)
        job = job_of(["collbench"], "gpu", hosts or None, environment=environment)
        assert (job.counts, job.numas) == (counts, near), (numas, environment, hosts)
    monkeypatch.setattr(launching, "find_platform", lambda name: replace(here, available=lambda: False))
    with pytest.raises(UsageError, match=r"no GPU is seen here.*fix: --ranks-per-node N"):
        job_of(["collbench"], "gpu", ["a", "b"], environment={})
    assert job_of(["collbench"], "gpu", ["a", "b:8"], per_node=8, environment={}).counts == (8, 8)


def test_jobs_that_cannot_be_are_refused_with_the_fix() -> None:
    for on, given, reason in (
        ("dgx-h100", {}, "nothing runs on dgx-h100, so there are no ranks to start; choose from: gpu, cpu"),
        ("cpu", {"hosts": ["a", "b", "c"], "ranks": 2}, "fix: --ranks 3 or more"),
        ("cpu", {"hosts": ["# none"]}, "there is no host in --hosts or --hostfile"),
        ("cpu", {"hosts": ["a:0"]}, "some hosts have no rank"),
    ):
        with pytest.raises(UsageError, match=reason):
            job_of(["collbench"], on, environment={}, **given)  # type: ignore[arg-type]
