"""Wrong words are one line that names the choices or the fix, exit status 2, and nothing is started or left behind."""

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import ROOT, Command, needs_command

LAUNCHED = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
H100 = "predict dgx-h100"
RUN = ROOT / "results" / "cpu-2-ranks"
REFUSED = {  # by what all these words stand behind; of a complaint, parts with other words between them
    "sweep --on cpu": (
        ("--op alreduce", "unknown collective 'alreduce'; did you mean allreduce or reduce? choose from: allreduce, "),
        ("-o sum", "-o sum: -o is the folder to write to; the reduction is --redop sum"),
        ("--impl fastest", "unknown implementation 'fastest'; choose from: all, library, ladder, narrow, mpi"),
        ("--impl nccl", "nccl does not run on cpu; choose from"),
        ("-b 0", "--minbytes 0 is impossible; give at least 1"),
        ("-b 1M -e 8", "-b 1M is larger than -e 8"),
        ("-e 900T", "of shared memory and "),
        ("-r 2", "--root 2 is no rank; choose from 0 to 1"),
        ("--on moon", "unknown --on 'moon'; choose from: auto, gpu, cpu, ... dgx-h100, "),
        ("--out /proc/nothing", "cannot write to /proc/nothing"),
        ("--json /proc/nothing.json", "cannot write /proc/nothing.json: ... choose another --json FILE"),
        ("--json .", "cannot write .: Is a directory"),
        ("--json new.json -b 0", "--minbytes 0 is impossible; give at least 1"),
        ("--nodes 2", "--nodes needs a described system, which --on cpu is not"),
        ("--rendezvous", "--rendezvous names no folder; give one that all processes see"),
        ("--rendezvous=", "--rendezvous names no folder; give one that all processes see"),
    ),
    "sweep --ab": (
        ("A", "--ab 'A' sets no variable; write NAME=VALUE, NAME= (empty) or -NAME (not set)"),
        ('"A=\'1"', "close the quotes"),
        ("'A=1 -A'", "names A twice"),
        ("COLLBENCH_LINK=x", "--ab cannot set COLLBENCH_LINK: collbench sets it itself"),
        ("A=1 --ab A=2 --ab A=3", "--ab is given 3 times, but compares two settings"),
        ("A=1 --on dgx-h100", "--ab measures, but --on dgx-h100 is a model"),
        ("A=1 --on cpu --out /proc/nothing", "cannot write to /proc/nothing/as-is"),
        ("CXX=no-such-compiler --on cpu --starts 1", "with CXX=no-such-compiler: the C++ compiler 'no-such-compiler'"),
    ),
    "sweep --mpi": (
        ("lam", "unknown MPI library 'lam'; choose from: mvapich, cray, intel, openmpi, mpich, a folder"),
        ("mpich,mpich", "--mpi names ... twice"),
        ("mpich --on gpu", "--mpi names libraries for ranks on a CPU, but these run on gpu"),
        ("mpich --ab X=1", "--mpi and --ab"),
    ),
    "sweep --nccl": (
        ("/nowhere --on gpu", "--nccl /nowhere: there is no libnccl.so.2; give ... a file"),
        ("2.1.0 --on gpu", "--nccl 2.1.0: there is no ... pip install --target FOLDER nvidia-nccl-cu13==RELEASE"),
        ("2.30.7 --on cpu", "--nccl names libraries for ranks on a GPU, but these run on cpu"),
        ("2.30.7 --on gpu --starts 2", "--nccl starts the ranks once for each library"),
        ("2.30.7 --mpi mpich", "--mpi is for ranks on a CPU, and --nccl for ranks on a GPU"),
        ("2.30.7 --ab X=1", "--nccl and --ab"),
    ),
    "predict": (
        ("", "no SYSTEM is given; choose one of `collbench list systems`"),
        (f"--fit {RUN} -b 8", "--fit fits measured runs and predicts nothing; leave --minbytes out"),
        (f"dgx-h100 --fit {RUN}", "names the machine of a calibration; give --out FILE.toml"),
        (f"dgx-h100 --fit {RUN} --on b200", "both name the machine of the runs"),
        ("dgx-h100 --on b200", "give them with --fit RUN"),
        ("dgx-h100 --out mine.toml", "must be a folder; to write a calibration, give --fit RUN"),
        ("dgx-h100,moon", "unknown system 'moon'; choose from: ... dgx-h100 ... FILE.toml"),
        ("dgx-h100,dgx-h100", "names a system twice"),
        ("dgx-h100,hgx-h200 --impl ring-host", "are only bounds, since no measurement"),
    ),
    "all_reduce_perf": (
        ("-J /proc/nothing.json", "cannot write /proc/nothing.json"),
        ("-R 2 --impl nccl", "leave --impl out"),
    ),
    H100: (
        ("--json /proc/nothing.json", "cannot write /proc/nothing.json"),
        ("--csv", "--csv needs several systems"),
        ("--impl mpi", "mpi does not run on gpu; choose from"),
        ("--nodes 1..64", "--nodes 1..64 is not one number; `collbench step scale"),
        ("--nodes 4 --what-if rain", "unknown what-if 'rain'; did you mean rail? choose from: link-down="),
        ("--what-if ecmp", "nothing between nodes here; give 2 nodes or more"),
        ("--nodes 64 --what-if link-down=leaf99:spine0", "no link"),
    ),
    "startup": (("--ranks 0", "--ranks 0 is not possible; give numbers"), ("--on dgx-h100", "unknown --on")),
    "explain --on cpu": (("--impl nonsense", "unknown implementation"),),
    "step scale --on cpu": (
        ("--ranks 2 --slow-rank 2", "--slow-rank 2 is no rank of 2; choose from 0 to 1"),
        ("--ranks 1", "--ranks 1 has no other rank to delay"),
        ("--ranks 2 --compute 0ms", "no duration"),
        ("--ranks 2 --steps 900000", "choose from 16 to 250000"),
        ("--ranks 2 --mode strong", "--mode strong needs several numbers of ranks"),
        ("--steps 16", "--steps needs one number of ranks"),
        ("--on dgx-h100 --ranks 1", "give 1 to 64 numbers from 2 to"),
        ("--on dgx-h100 --steps 20", "--steps needs measured ranks"),
        ("--ranks 0,1", "from 1 to 1073741824"),
        ("--slow-rank 1:0", "from 1 to"),
        ("--on dgx-h100 --ranks 8,12", "no part of 12 ranks; give 1 to 8, or whole nodes up to 16"),
    ),
    "step overlap --on cpu": (
        ("--ranks 1", "at least 2"),
        ("--buckets 128M", "more than the 8 MiB"),
        ("--compute 1GFLOP", "no duration"),
    ),
    "step strategies --ranks 2": (
        ("--strategy tree", "unknown strategy 'tree'; choose from: all, library, ring"),
        ("--slow-rank 2", "--slow-rank 2 is no rank of 2; choose from 0 to 1"),
        ("--slow-rank 1:0.5", "give one from 1 to 1000"),
        ("--slow-rank 1 --slow-rank 1:2", "appears twice"),
        ("--staleness -1", "give at least 0 and at most 10000"),
        ("--target nan", "--target nan is impossible; give more than 0"),
    ),
    "train --model llama3-8b --on dgx-h100 --gpus 16 --batch 64": (
        ("--model gpt9", "choose from: gpt2-small"),
        ("--model layers=4,hidden=100,heads=3", "not divisible by 3 heads; give hidden 99"),
        ("--model layers=4,hidden=128", "heads is missing"),
        ("--model layers=4,hidden=128,heads=4,width=3", "choose from"),
        ("--gpus 0", "give at least 1"),
        ("--gpus 1024 --batch 3", "such as --batch"),
        ("--layout tp3", "cannot divide the 32 heads"),
        ("--precision fp4", "choose from: bf16"),
        ("--tokens 1e12", "needs --price"),
        ("--price 2.5euros", "such as 2.5 or 2.5EUR"),
        ("--price 0", "write one above 0"),
        ("--compare-interconnects dgx-h100,nowhere", "choose from"),
        ("--anchor 1ms", "cannot be the step"),
        ("--model llama3-405b --gpus 8", "short with"),
        ("--top 0", "at least 1"),
    ),
    "": (
        ("swep", "unknown command 'swep'; did you mean sweep or step? choose from: "),
        ("predict dgx-h10", "unknown system 'dgx-h10'; did you mean ... dgx-h100"),
        ("step scale --on dgx-h100,mi300x", "'dgx-h100,mi300x'; did you mean dgx-h100 or mi300x? "),
        ("train --compare-interconnects", "requires an argument SYSTEM,..., such as ... ; `collbench train --help`"),
        ("sweep -b", "'-b' requires an argument SIZE; `collbench sweep --help` says what it takes"),
        ("sweep --impl ring-flag", "unknown implementation 'ring-flag'; did you mean ... ring-flags"),
        ("sweep foo", "unexpected extra argument (foo); `collbench sweep --help` says what it takes"),
        ("exercise foo", "No such command 'foo'; choose from: check, hint, list, start"),
        ("exercise start", "Missing argument 'N'; `collbench exercise start --help` says what it takes"),
        ("nosuch", "unknown command 'nosuch'; choose from: check, "),
        ("step nosuch", "No such command 'nosuch'; choose from: overlap, scale, strategies"),
        ("plot --formats svg", "No such option ... --format"),
        ("sweep --minbyte 8", "Did you mean ... --minbytes"),
        ("all_reduce_perf --iter 9", "Did you mean ... --iters"),
        ("list runs nowhere", "no folder nowhere"),
        ("list nothing", "choose from: formats, models, runs, systems"),
    ),
}


def refused(here: Command, folder: Path, words: str, complaint: str, status: int = 2, **variables: str) -> None:
    done = here(*shlex.split(words), **variables)
    told = [
        line for line in done.stderr.strip().splitlines() if "waiting for the ranks" not in line
    ]  # where it is slow
    assert (done.returncode, done.stdout, len(told)) == (status, "", 1), (words, done.stdout, done.stderr)
    for part in complaint.split(" ... "):
        assert part in done.stderr, (words, done.stderr)
    assert list(folder.iterdir()) == [], words


@pytest.mark.parametrize("before", REFUSED)
def test_wrong_words_are_one_line_and_exit_2(here: Command, tmp_path: Path, before: str) -> None:
    # Words behind no command name several commands.
    for word in re.findall(r"[a-z_]+", before)[:1] or ("step", "exercise", "predict"):
        needs_command(word)
    for words, complaint in REFUSED[before]:
        refused(here, tmp_path, f"{before} {words}", complaint)


def test_ranks_have_the_limits_of_the_option_the_machine_a_launcher_and_a_system(here: Command, tmp_path: Path) -> None:
    for words, complaint, variables in (
        ("sweep --on cpu --ranks 0", "--ranks 0 is impossible; give at least 1", {}),
        ("sweep --on cpu --ranks 999999", "exceeds this machine's limit: ... `collbench predict SYSTEM`", {}),
        ("sweep --on cpu --ranks 3", "--ranks 3 although the launcher started 2; leave --ranks out", LAUNCHED),
        ("startup --on cpu --ranks 1,2", "--ranks 1,2 is not possible", LAUNCHED),
        (f"{H100} --ranks 16", "--ranks 16 exceeds the 8 GPUs of DGX H100; ... --nodes 2", {}),
        (f"{H100} --nodes 2 --ranks 6", "give --ranks 16 for all, or --nodes 1 ... , or --ranks-per-node 3", {}),
        (f"{H100} --ranks-per-node 9", "exceeds the 8 GPUs of a node ... ; choose from 1 to 8", {}),
        (f"{H100} --ranks-per-node 4 --ranks 10", "is not ... on 3 nodes; give --ranks 12", {}),
    ):
        refused(here, tmp_path, words, complaint, **variables)


def test_where_every_row_would_be_skipped_no_rank_is_started(here: Command, tmp_path: Path) -> None:
    for words, reason in (
        ("sweep --on cpu --impl ring-host --op broadcast", "ring-host carries out allreduce only"),
        ("sweep --on cpu --impl one-shot-ll -b 1M -e 1M", "one-shot-ll: inboxes hold messages up to"),
        ("sweep --on cpu --impl narrow-e4m3 -d int32", "narrow-e4m3: ... not int32"),
        ("sweep --on cpu --op barrier --in-place", "barrier has no in-place form"),
        ("verify --on cpu --impl two-shot --op alltoall", "two-shot carries out allreduce only"),
        ("explain --on cpu --impl two-shot --op alltoall", "two-shot carries out allreduce only"),
        ("sweep --on cpu --ab A=1 --impl two-shot --op alltoall", "two-shot carries out allreduce only"),
        ("all_gather_perf --on cpu --impl ring-host", "ring-host carries out allreduce only"),
    ):
        refused(here, tmp_path, words, f"every row would be skipped: ... {reason}")


def test_a_sweep_whose_rows_were_all_skipped_says_so_and_ends_with_status_1(here: Command, tmp_path: Path) -> None:
    done = here("predict", "dgx-a100", "--impl", "nvls", "-b", "7", "-e", "7")
    assert done.returncode == 1
    assert "no row has a time: all are skipped" in done.stderr
    assert "sizes: 4 B instead of 7 B" in done.stderr
    assert "sizes:" not in here("predict", "dgx-a100", "-f", "5", "--no-plot").stderr
    done = here("predict", "dgx-a100", "-b", "1M", "-e", "1G", "-f", "16", "--no-plot")
    assert "sizes: the last is 256 MiB; the next step exceeds 1 GiB" in done.stderr


def test_what_starts_ranks_by_itself_is_refused_under_a_launcher(here: Command, tmp_path: Path) -> None:
    for words in ("sweep --on cpu --ab X=1", "sweep --mpi mpich", "sweep --on gpu --nccl 2.30.7"):
        refused(here, tmp_path, words, "under a launcher (mpirun, srun)", **LAUNCHED)
