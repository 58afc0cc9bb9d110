"""Whether somebody else started the ranks."""

from collbench.host.launcher import RENDEZVOUS, complaint, launched, neighbours, starts_mpi, unlaunched

SRUN = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "PMI_SIZE": "2", "PMI_RANK": "1"}
STEP = {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}


PLACES: tuple[tuple[dict[str, str], tuple[int, int] | None], ...] = (
    ({}, None),
    ({"PMI_SIZE": "2", "PMI_RANK": "1"}, (1, 2)),
    ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}, (3, 4)),
    ({"MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_RANK": "0"}, (0, 2)),
    ({"WORLD_SIZE": "8", "RANK": "7"}, (7, 8)),
    ({"SLURM_STEP_NUM_TASKS": "10", "SLURM_PROCID": "9"}, (9, 10)),
    ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, None),
    (STEP, None),
    ({"PMI_SIZE": "1", "PMI_RANK": "0"}, None),
    (STEP | {"WORLD_SIZE": "4", "RANK": "2"}, (2, 4)),
    ({"PMI_SIZE": "1", "PMI_RANK": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}, (1, 2)),
    ({"PMI_SIZE": "2"}, None),
    ({"WORLD_SIZE": "", "RANK": ""}, None),
    ({"RANK": "gold"}, None),
    ({"PMI_SIZE": "2", "PMI_RANK": "0", "WORLD_SIZE": "four", "RANK": "0"}, (0, 2)),
    ({"WORLD_SIZE": "3", "JOB_COMPLETION_INDEX": "2"}, (2, 3)),
    ({"JOB_COMPLETION_INDEX": "2"}, None),
    (SRUN | {"WORLD_SIZE": "16", "RANK": "9", "TORCHELASTIC_RUN_ID": "none"}, (9, 16)),
    (SRUN | {"WORLD_SIZE": "16", "RANK": "9"}, (1, 2)),
)
NEIGHBOURS: tuple[tuple[dict[str, str], int], ...] = (
    ({}, 1),
    ({"PMI_SIZE": "3", "PMI_RANK": "1"}, 3),
    ({"PMI_SIZE": "8", "PMI_RANK": "1", "MPI_LOCALNRANKS": "4"}, 4),
    ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
    ({"MV2_COMM_WORLD_SIZE": "4", "MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_LOCAL_SIZE": "1"}, 1),
    ({"WORLD_SIZE": "16", "RANK": "7", "LOCAL_WORLD_SIZE": "8"}, 8),
    ({"SLURM_STEP_NUM_TASKS": "10", "SLURM_PROCID": "9", "SLURM_STEP_TASKS_PER_NODE": "4(x2),2"}, 4),
    ({"SLURM_STEP_NUM_TASKS": "24", "SLURM_PROCID": "9", "SLURM_STEP_TASKS_PER_NODE": "2,11(x2)"}, 11),
    (
        {"PMI_SIZE": "8", "PMI_RANK": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "1"}
        | {"SLURM_STEP_TASKS_PER_NODE": "2(x4)"},
        2,
    ),
    (STEP | {"SLURM_STEP_TASKS_PER_NODE": "1"}, 1),
    ({"WORLD_SIZE": "4", "RANK": "0", "LOCAL_WORLD_SIZE": "?"}, 4),
)


def test_a_run_is_launched_by_who_started_several_processes() -> None:
    for environment, place in PLACES:
        assert launched(environment) == place, environment


def test_launchers_say_how_many_processes_are_here() -> None:
    for environment, here in NEIGHBOURS:
        assert neighbours(environment) == here, environment


def test_mpi_starts_where_its_own_launcher_or_a_pmi_is_and_no_folder_was_named() -> None:
    slurm = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
    for environment, can in (
        ({}, False),
        ({"PMI_SIZE": "2", "PMI_RANK": "1"}, True),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}, True),
        ({"MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_RANK": "0"}, True),
        (slurm, False),
        (slurm | {"PMIX_RANK": "1"}, True),
        (slurm | {"PMI_RANK": "1", "PMI_FD": "12"}, True),
        (SRUN | {RENDEZVOUS: "folder"}, False),
        (SRUN | {"WORLD_SIZE": "16", "RANK": "9", "TORCHELASTIC_RUN_ID": "none"}, False),
        ({"WORLD_SIZE": "8", "RANK": "7"}, False),
        ({"WORLD_SIZE": "3", "JOB_COMPLETION_INDEX": "2"}, False),
    ):
        assert starts_mpi(environment) == can, environment


def test_what_launchers_say_is_taken_away_and_nothing_else() -> None:
    told = ("PMI_FD", "PMI_SIZE", "PMI2_X", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "PRTE_LAUNCHED", "OMPI_MCA_orte_x")
    told += ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURMD_NODENAME", "LSB_HOSTS", "PBS_NODEFILE", "HYDI_CONTROL_FD")
    told += ("MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "PE_HOSTFILE", "COBALT_NODEFILE", "OMPI_MCA_ess")
    mine = {"PATH": "/bin", "OMPI_MCA_btl": "self", "PMIX_MCA_gds": "hash", "PRTE_MCA_x": "1", "MV2_DEBUG": "1"}
    mine |= {"NCCL_ALGO": "Ring", "MPIR_CVAR_X": "1", "UCX_TLS": "tcp", "MY_SLURM_NOTE": "x", "PE_HOSTFILES": "x"}
    assert unlaunched(mine | dict.fromkeys(told, "1")) == mine


def test_what_no_launcher_says_is_a_complaint_with_the_variable_and_the_fix() -> None:
    for environment, beginning in (
        ({"WORLD_SIZE": "many"}, "WORLD_SIZE=many is no number of processes"),
        ({"PMI_SIZE": "-1", "PMI_RANK": "0"}, "PMI_SIZE=-1"),
        ({"WORLD_SIZE": "0", "RANK": "0"}, "WORLD_SIZE=0"),
        ({"WORLD_SIZE": "2", "RANK": "first"}, "RANK=first is no rank of WORLD_SIZE=2"),
        ({"SLURM_STEP_NUM_TASKS": "9" * 5000, "SLURM_PROCID": "0"}, "SLURM_STEP_NUM_TASKS=999"),
    ):
        assert complaint(environment).startswith(beginning)
        assert complaint(environment).endswith("unset it, or leave it to a launcher (mpirun, srun, torchrun)")
        assert launched(environment) is None
    for environment, _ in (*PLACES, *NEIGHBOURS):
        assert not complaint(environment), environment
