"""MPI libraries, a record each: how they are called, told apart, found and started, and what they cannot do."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """An MPI library, whatever its version."""

    key: str  # its word for --mpi
    name: str  # as people write it
    version: str  # a pattern for what MPI_Get_library_version says, whose group is the version
    mark: bytes  # bytes that its file has, and no other's of the same interface
    launcher: str  # a pattern for what its launcher says of itself
    launchers: tuple[str, ...]  # names of that, the surest first
    files: tuple[str, ...]  # names of the library
    install: str  # how to get it
    roots: tuple[str, ...] = ()  # variables that name its folder
    places: tuple[str, ...] = ()  # where its folder is by custom
    options: tuple[str, ...] = ()  # of the launcher, for ranks on this machine
    silent: tuple[str, ...] = ()  # another launcher beside it that the network does not reach, with its options
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)  # for the same, unless the user set it
    adds_half_since: int = 0  # major version whose reductions know 16-bit floats


_MPICH_FILES = ("libmpi.so.12", "libmpich.so.12", "libmpi.so")
_HYDRA = ("mpiexec.hydra", "mpiexec", "mpirun")
_HERE = ("-launcher", "fork", "-rmk", "user", "-hosts", "localhost")
"""For Hydra: ranks are its children on this machine, whatever batch system or file of hosts is there."""
_VENV = "python3 -m venv FOLDER, FOLDER/bin/pip install {}, and --mpi FOLDER"

KINDS = {
    kind.key: kind
    for kind in (
        Kind(
            key="mvapich",
            name="MVAPICH",
            version=r"MVAPICH\d*\s+Version\s*:\s*(\S+)",
            mark=b"MVAPICH",
            launcher=r"HYDRA build details",
            launchers=_HYDRA,
            files=_MPICH_FILES,
            install="build it, and --mpi its folder",
            roots=("MV2_HOME", "MVAPICH_HOME"),
            options=_HERE,
        ),
        Kind(
            key="cray",
            name="Cray MPICH",
            version=r"CRAY MPICH version (\S+)",
            mark=b"CRAY MPICH",
            launcher=r"HYDRA build details|\bPALS\b",
            launchers=_HYDRA,
            files=("libmpi_gnu.so.12", *_MPICH_FILES),
            install="module load cray-mpich",
            roots=("CRAY_MPICH_DIR", "MPICH_DIR"),
        ),
        Kind(
            key="intel",
            name="Intel MPI",
            version=r"Intel\(R\) MPI Library (\S+)",
            mark=b"Intel(R) MPI Library",
            launcher=r"Intel\(R\) MPI Library",
            launchers=_HYDRA,
            files=("libmpi.so.12", "release/libmpi.so.12"),
            install=_VENV.format("impi-rt"),
            roots=("I_MPI_ROOT",),
            places=("/opt/intel/oneapi/mpi/latest",),
            options=_HERE,
        ),
        Kind(
            key="openmpi",
            name="Open MPI",
            version=r"Open MPI v([^\s,]+)",
            mark=b"ompi_mpi_comm_self",
            launcher=r"Open ?MPI|OpenRTE|PRTE",
            launchers=("mpirun.openmpi", "mpiexec.openmpi", "mpirun", "mpiexec"),
            files=("libmpi.so.40", "libmpi.so"),
            install=f"apt install openmpi-bin, or {_VENV.format('openmpi')}",
            roots=("OPAL_PREFIX", "MPI_HOME", "EBROOTOPENMPI"),
            places=("/usr/lib64/openmpi", "/opt/openmpi"),
            options=("--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"),  # as Hydra leaves it: ranks may be anywhere
            environment={
                "OMPI_ALLOW_RUN_AS_ROOT": "1",  # which containers are, and what a benchmark may be
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            },
            adds_half_since=5,
        ),
        Kind(  # last: what is made of it has its marks too
            key="mpich",
            name="MPICH",
            version=r"MPICH Version:\s*(\S+)",
            mark=b"MPICH Version:",
            launcher=r"HYDRA build details",
            launchers=("mpiexec.mpich", *_HYDRA),
            files=_MPICH_FILES,
            install=f"apt install mpich, or {_VENV.format('mpich')}",
            roots=("MPICH_HOME",),
            places=("/usr/lib64/mpich",),
            options=_HERE,
            silent=("mpiexec.gforker", "-exitinfo"),  # socket pairs, where Hydra listens on all addresses
        ),
    )
}
ALIASES = {"impi": "intel", "intelmpi": "intel", "intel-mpi": "intel", "ompi": "openmpi", "open-mpi": "openmpi"}


def short_name(said: str) -> str:
    """What a library says of itself as `MPICH 5.0.2`; its first words where nobody here knows it."""
    for kind in KINDS.values():
        if match := re.search(kind.version, said, re.IGNORECASE):
            return f"{kind.name} {match[1].rstrip(',')}"
    return " ".join(said.replace("\0", " ").split()[:4])


def adds_half(said: str) -> bool:
    """Whether a library that says this of itself can add 16-bit floats; one that cannot ends in a fault."""
    for kind in KINDS.values():
        if match := re.search(kind.version, said, re.IGNORECASE):
            return int((re.match(r"\d+", match[1]) or "0")[0]) >= kind.adds_half_since
    return False
