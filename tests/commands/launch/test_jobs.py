"""Commands that start ranks, on made-up machines: launchers that say whose they are, and batch systems' variables."""

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.commands.launch import command as launch_command
from collbench.commands.launch.command import LAUNCHERS, LaunchedJob, commands, hosts_of, job_of
from collbench.errors import UsageError
from collbench.platforms.cpu.mpi_libraries import KINDS
from collbench.topology.discovered import Gpu, Topology
from tests.platforms.cpu import test_libraries as made_up

TWO = {"node1": 4, "node2": 4}
NCCL = {"NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "3", "HOME": "/root"}
SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3"}
MPI_TYPES = "MPI plugin types are...\n\tnone\n\tpmix\n\tpmi2"

SRUN = "--nodelist=node1,node2 --mpi=pmi2 --cpu-bind=none --export=ALL"
RDZV = "--rdzv-id collbench --rdzv-backend c10d --rdzv-endpoint node1"
TOLD = {  # on two hosts with four ranks each, and with one rank more on the second host
    "srun": (f"--nodes=2 --ntasks=8 --ntasks-per-node=4 {SRUN}", f"--nodes=2 --ntasks=9 {SRUN}"),
    "mpich": (
        "-n 8 -hosts node1:4,node2:4 -ppn 4 -bind-to none -genvall",
        "-n 9 -hosts node1:4,node2:5 -bind-to none -genvall",
    ),
    "openmpi": (
        "-n 8 --host node1:4,node2:4 --map-by ppr:4:node --bind-to none -x NCCL_ALGO",
        "-n 9 --host node1:4,node2:5 --bind-to none -x NCCL_ALGO",
    ),
    "intel": ("-n 8 -hosts node1,node2 -ppn 4 -genv I_MPI_PIN off -genvall", ""),
    "cray": ("-n 8 --hosts node1,node2 --ppn 4 --cpu-bind none --envall", ""),
    "torchrun": (f"--nnodes 2 --nproc-per-node 4 {RDZV} --no-python", ""),
}
TOLD["mvapich"] = TOLD["mpich"]


def program(folder: Path, name: str, says: str = "") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Path]:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "bin" / "python"))
    monkeypatch.setitem(made_up.SAYS, "cray", "PALS mpiexec version 1.3.4")
    monkeypatch.setitem(made_up.MARKS, "cray", b"\0CRAY MPICH version %s\0")
    monkeypatch.setitem(made_up.PLACES, "cray", "lib")
    programs = {"srun": program(tmp_path / "slurm", "srun", MPI_TYPES), "torchrun": program(tmp_path / "t", "torchrun")}
    for key, kind in KINDS.items():
        programs[key] = made_up.install(tmp_path / key, key) / "bin" / kind.launchers[0]
    absent = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else absent(name, *rest)
    )
    return programs


def on_path(programs: Mapping[str, Path], **more: str) -> dict[str, str]:
    return {"PATH": ":".join(str(file.parent) for file in programs.values()), **NCCL, **more}


def words(job: LaunchedJob, name: str) -> list[str]:
    return commands(job, name)[0][name]


def test_each_launcher_is_told_hosts_ranks_and_variables_in_its_words(machine: dict[str, Path]) -> None:
    assert set(TOLD) == set(LAUNCHERS)
    environment = on_path(machine, **SLURM) | dict(KINDS["openmpi"].environment)
    for which, counts in enumerate((TWO, {"node1": 4, "node2": 5})):
        made, refused = commands(LaunchedJob(("collbench", "sweep"), counts, environment))
        for name, told in TOLD.items():
            rest = "collbench sweep --rendezvous ./" if name == "torchrun" else "collbench sweep"
            if told[which]:
                assert " ".join(made[name]) == f"{machine[name]} {told[which]} {rest}", (name, which)
            else:
                assert "--ranks-per-node" in refused[name], name


def test_srun_is_told_the_names_of_some_of_its_hosts_and_not_of_all(machine: dict[str, Path]) -> None:
    for count, named in (("2", False), ("3", True)):
        job = LaunchedJob(("collbench",), TWO, on_path(machine, **SLURM | {"SLURM_JOB_NUM_NODES": count}))
        assert any("--nodelist" in word for word in words(job, "srun")) == named, count


def test_on_this_machine_alone_no_network_is_asked_for(machine: dict[str, Path]) -> None:
    job = LaunchedJob(("collbench",), {"localhost": 2}, on_path(machine) | dict(KINDS["openmpi"].environment))
    for name, told in {
        "mpich": "-n 2 -launcher fork -rmk user -hosts localhost -ppn 2 -bind-to none -genvall collbench",
        "openmpi": "-n 2 --host localhost:2 --map-by ppr:2:node --bind-to none collbench",
        "torchrun": "--nnodes 1 --nproc-per-node 2 --standalone --no-python collbench --rendezvous ./",
    }.items():
        assert " ".join(words(job, name)) == f"{machine[name]} {told}"


def test_srun_gets_the_pmi_that_the_mpi_library_knows_and_without_any_a_folder_to_meet_in(
    machine: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, types, pmi in (
        ("mpich", MPI_TYPES, "pmi2"),
        ("openmpi", MPI_TYPES, "pmix"),
        ("cray", "cray_shasta pmi2", "cray_shasta"),
        ("openmpi", "", "none"),
        ("mpich", "MPI plugin types are...\n\tnone", "none"),
    ):
        srun = program(machine["srun"].parent, "srun", types)
        made_up.install(machine[key].parent.parent, key, "mpiexec")
        environment = on_path({"srun": srun, key: machine[key]}, **SLURM)
        job = LaunchedJob(("collbench", "sweep"), TWO, environment)
        assert f"--mpi={pmi}" in words(job, "srun"), (key, types)
        assert (words(job, "srun")[-2:] == ["--rendezvous", "./"]) == (pmi == "none"), (key, types)
    named = replace(job, program=("collbench", "sweep", "--rendezvous", "/shared"))
    assert words(named, "srun")[-1] == "/shared"
    bare = replace(job, environment={"PATH": str(srun.parent), "CRAY_MPICH_DIR": "/opt/cray", **SLURM})
    program(srun.parent, "srun", "pmi2 cray_shasta")
    assert "--mpi=cray_shasta" in words(bare, "srun")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    program(srun.parent, "srun", "none")
    assert words(job, "srun")[-1] == "sweep"


def test_a_launcher_that_cannot_be_used_says_why(machine: dict[str, Path]) -> None:
    nothing = LaunchedJob(("collbench",), TWO, {"PATH": "/nowhere"})
    made, reasons = commands(nothing)
    assert not made
    for name, reason in (("srun", "SLURM_JOB_ID"), ("torchrun", "no torchrun"), ("intel", "pip install impi-rt")):
        assert reason in reasons[name]
    assert "no srun" in commands(replace(nothing, environment=nothing.environment | SLURM), "srun")[1]["srun"]


def test_as_root_open_mpi_is_allowed_to_start_and_what_the_user_set_stays(
    machine: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    job = LaunchedJob(("collbench",), {"localhost": 2}, on_path(machine))
    for user, start in ((0, f"env {allowed} {machine['openmpi']} -n"), (1000, f"{machine['openmpi']} -n")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert " ".join(words(job, "openmpi")).startswith(start), user


def test_auto_prefers_slurm_then_the_library_that_ranks_load(machine: dict[str, Path]) -> None:
    srun = program(machine["srun"].parent, "srun", MPI_TYPES)
    for key in ("openmpi", "mpich"):
        made_up.install(machine[key].parent.parent, key, "mpiexec")
        job = LaunchedJob(("collbench",), TWO, {"PATH": f"{machine[key].parent}:{srun.parent}", **SLURM})
        assert [*commands(job)[0]][:2] == ["srun", key]
        assert [*commands(job, "mpirun")[0]] == [key]
    for word, name in (("impi", "intel"), ("ompi", "openmpi")):
        made, refused = commands(job, word)
        assert [*made, *refused] == [name], word
    with pytest.raises(UsageError, match=r"unknown launcher 'qrsh'; choose from: auto, mpirun, srun, .*torchrun"):
        commands(job, "qrsh")


def asked(
    on: str, environment: Mapping[str, str], hosts: list[str] | None = None, per_node: int | None = None
) -> LaunchedJob:
    return job_of(["collbench"], on, hosts, per_node, environment)


def test_both_dialects_of_host_files_are_read() -> None:
    for lines, hosts in (
        (
            ["node1 slots=8", "node2  max-slots=8 slots = 4", "node3:2 binding=numa"],
            {"node1": 8, "node2": 4, "node3": 2},
        ),
        (["# a comment", "", "node1  # another", "10.0.0.1"], {"node1": None, "10.0.0.1": None}),
        (["a", "a", "b", "a", "b"], {"a": 3, "b": 2}),
        (["a:2", "b", "a:3"], {"a": 5, "b": None}),
        (["[fe80::1]:2"], {"[fe80::1]": 2}),
    ):
        assert hosts_of(lines) == hosts, lines
    for wrong in ("node1:many", "node1:", ":8", "node1:4:4", "node1 node2", "-x", "node1:9999999", "node1:0"):
        with pytest.raises(UsageError, match=r"is no host; write node, node:8 or node slots=8"):
            hosts_of([wrong])


def test_hosts_are_those_that_are_named_or_of_the_batch_system_or_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("node1\nnode1\nnode1\nnode2\nnode2\nnode2\n")
    pbs, lsf = {"PBS_NODEFILE": str(file)}, {"LSB_DJOB_HOSTFILE": str(file), "LSB_HOSTS": "else where"}
    for environment, given, places in (
        ({}, {}, {"localhost": 2}),
        ({}, {"hosts": ["a", "b:8"]}, {"a": 2, "b": 8}),
        ({}, {"hosts": ["a", "b:8"], "per_node": 3}, {"a": 3, "b": 3}),
        (pbs, {}, {"node1": 3, "node2": 3}),
        (pbs, {"per_node": 1}, {"node1": 1, "node2": 1}),
        (lsf, {}, {"node1": 3, "node2": 3}),
        ({"LSB_HOSTS": "x x y"}, {}, {"x": 2, "y": 1}),
        (pbs, {"hosts": ["a:1"]}, {"a": 1}),
    ):
        assert asked("cpu", environment, **given).hosts == places, (environment, given)


def test_slurm_says_which_nodes_there_are_and_how_many_ranks_each_may_have(tmp_path: Path) -> None:
    scontrol = program(tmp_path, "scontrol")
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames node[1-3]" ] && printf "node1\\nnode2\\nnode3\\n"\n')
    slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "node[1-3]", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    for tasks, counts in ({"SLURM_TASKS_PER_NODE": "4(x2),3"}, (4, 4, 3)), ({}, (1, 1, 1)):
        job = asked("cpu", slurm | tasks)
        assert job.hosts == dict(zip(("node1", "node2", "node3"), counts, strict=True)), tasks


def test_hosts_have_a_rank_for_each_gpu_seen_here_whatever_slots_the_batch_system_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "nodes").write_text("x\nx\nx\ny\ny\ny\n")
    pbs, kind = {"PBS_NODEFILE": str(tmp_path / "nodes")}, launch_command.find_platform("gpu")
    for gpus, environment, hosts, counts in (
        (4, {}, ["a", "b"], {"a": 4, "b": 4}),
        (4, {}, None, {"localhost": 4}),
        (4, pbs, None, {"x": 4, "y": 4}),
        (4, {}, ["a:2", "b"], {"a": 2, "b": 4}),
        (1, {}, ["a", "b"], {"a": 1, "b": 1}),
        (1, {}, None, {"localhost": 2}),
    ):
        found = Topology("gpu", gpus, (Gpu("GPU"),) * gpus)
        here = replace(
            kind,
            discover=lambda ranks, found=found: (found, ""),
            default_ranks=lambda found=found: max(2, len(found.gpus)),
            available=lambda: True,
        )
        monkeypatch.setattr(launch_command, "find_platform", lambda name, here=here: here)
        assert asked("gpu", environment, hosts).hosts == counts, (gpus, environment, hosts)
    monkeypatch.setattr(launch_command, "find_platform", lambda name: replace(here, available=lambda: False))
    with pytest.raises(UsageError, match=r"no GPU is visible here.*fix: --ranks-per-node N"):
        asked("gpu", {}, ["a", "b"])
    assert asked("gpu", {}, ["a", "b:2"], per_node=8).hosts == {"a": 8, "b": 8}


def test_jobs_that_cannot_be_are_refused_with_the_fix() -> None:
    for environment, hosts, reason in (
        ({}, ["# none"], "there is no host in --hosts or --hostfile"),
        ({"SLURM_JOB_NODELIST": "node[1-3]", "PATH": "/nowhere"}, None, "no scontrol"),
    ):
        with pytest.raises(UsageError, match=reason):
            asked("cpu", environment, hosts)
