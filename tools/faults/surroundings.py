"""Trials with unusual surroundings: folders, homes, paths, and the variables of batch systems."""

from collections.abc import Iterator

from tools.faults.trial import GOOD, SHORT, USAGE, Done, Scene, Trial

DEEP = "/".join(["d" * 60] * 4)
SLURM = {
    **dict.fromkeys(("SLURM_JOB_ID", "SLURM_JOBID"), "7"),
    **dict.fromkeys(("SLURM_NODELIST", "SLURM_JOB_NODELIST"), "elsewhere[1-2]"),
    **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS"), "2"),
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURM_CONF": "@/nothing",
}
BATCH = {
    "Slurm's allocation": SLURM,
    "a shell of srun": SLURM
    | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "PMI_RANK": "0", "PMI_SIZE": "1", "PMI_FD": "99"},
    "PBS": {"PBS_NODEFILE": "@/nodes", "PBS_JOBID": "7", "PBS_ENVIRONMENT": "PBS_BATCH"},
    "HYDRA_HOST_FILE": {"HYDRA_HOST_FILE": "@/nodes"},
    "Open MPI's settings": {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_plm_rsh_agent": "@/bin/ssh"},
}
STARTERS = ("srun", "ssh", "rsh", "blaunch", "qrsh", "llspawn")


def starters(scene: Scene) -> None:
    """Write programs that start ranks elsewhere, which must not be called, and a file of hosts."""
    (scene.folder / "bin").mkdir()
    for name in STARTERS:
        program = scene.folder / "bin" / name
        program.write_text(f"#!/bin/sh\necho {name} >>{scene.folder}/called\nexit 1\n")
        program.chmod(0o755)
    (scene.folder / "nodes").write_text("elsewhere\nelsewhere2\n")
    scene.environment["PATH"] = f"{scene.folder}/bin:{scene.environment['PATH']}"


def uncalled(scene: Scene, done: Done) -> str:
    called = scene.folder / "called"
    return f"called {called.read_text().split()}" if called.exists() else ""


def folders(scene: Scene) -> None:
    """Make unusual folders for variables to name."""
    (scene.folder / "file").touch()
    (scene.folder / DEEP).mkdir(parents=True)
    (scene.folder / "sealed").mkdir(mode=0o500)


PLACES = {  # values of a variable that should name a folder
    "a folder that is not there": "@/not/there",
    "a file": "@/file",
    "a long path": f"@/{DEEP}",
}


def trials() -> Iterator[Trial]:
    for name, variables in BATCH.items():
        yield Trial(f"with {name}", SHORT, (GOOD,), prepare=starters, variables=variables, check=uncalled)
    for place, path in PLACES.items():
        for variable in ("TMPDIR", "HOME") if place == "a file" else ("TMPDIR",):
            changes = {variable: path} | ({"COLLBENCH_CACHE": None} if variable == "HOME" else {})
            yield Trial(f"{variable} is {place}", SHORT, (GOOD, USAGE), prepare=folders, variables=changes)
    changes = {"COLLBENCH_CACHE": "@/file"}
    yield Trial("COLLBENCH_CACHE is a file", SHORT, (GOOD, USAGE), prepare=folders, variables=changes)
    for variable in ("HOME", "TMPDIR"):
        yield Trial(f"no {variable}", SHORT, (GOOD,), variables={variable: None, "LOGNAME": None})
    yield Trial("an empty PATH", SHORT, (GOOD, USAGE), variables={"PATH": ""})
    gone = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'
    yield Trial("a working folder that is gone", SHORT, (GOOD, USAGE), shell=gone)
    for limit in ("-n 24", "-v 3000000", "-u 0"):
        yield Trial(f"ulimit {limit}", SHORT, (GOOD, 1, USAGE), shell=f'ulimit {limit}; exec "$@"', speaks=True)
    yield Trial("SIGINT ignored", SHORT, (GOOD,), shell="trap '' INT; exec \"$@\"")
    yield Trial("a umask that forbids all", SHORT, (GOOD, USAGE), shell='umask 777; exec "$@"')
