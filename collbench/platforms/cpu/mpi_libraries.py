"""The MPI libraries on this machine, and the launcher of each.

mpi4py's wheel has a build for each of the two ABIs, MPICH's and Open MPI's, and loads the library that MPI4PY_LIBMPI
names. Each library needs its own launcher: under another one ranks do not find each other, or abort.
"""

import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar

import msgspec

from collbench.errors import PlatformError, UsageError, unknown
from collbench.platforms import compiler

_MPICH_FILES = ("libmpi.so.12", "libmpich.so.12", "libmpi.so")
_HYDRA = ("mpiexec.hydra", "mpiexec", "mpirun")
_HERE = ("-launcher", "fork", "-rmk", "user", "-hosts", "localhost")
"""For Hydra: ranks are its children on this machine, whatever batch system or file of hosts is there."""


@dataclass(frozen=True)
class Flags:
    """How a launcher learns where ranks are to be; as defaults, in the words of Hydra."""

    each: str = "-ppn {}"  # ranks on every host
    fixed: str = "-bind-to none -genvall"  # on any core, since collbench binds ranks itself; with all variables
    hosts: str = "-hosts"  # before the hosts, with a comma between
    slots: bool = True  # whether a host is written with its number of ranks, host:8
    here: tuple[str, ...] = _HERE  # instead of the hosts, for ranks on this machine
    variable: str = ""  # to pass on the variable whose name follows


@dataclass(frozen=True)
class MpiKind:
    """An MPI library, whatever its version."""

    key: str  # its word for --mpi
    name: str  # as people write it
    version: str  # a pattern for what MPI_Get_library_version says, whose group is the version
    mark: str  # that its file has, and no other's of the same interface
    install: str  # how to get it
    launcher: str = r"HYDRA build details"  # a pattern for what its launcher says of itself
    launchers: tuple[str, ...] = _HYDRA  # names of that, the surest first
    files: tuple[str, ...] = _MPICH_FILES  # names of the library
    roots: tuple[str, ...] = ()  # variables that name its folder
    places: tuple[str, ...] = ()  # where its folder is by custom
    options: tuple[str, ...] = ()  # of the launcher, for ranks on this machine
    silent: tuple[str, ...] = ()  # another launcher that the network does not reach, with its options
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)  # for the same, unless the user set it
    flags: Flags = Flags()  # of the launcher, for ranks on any hosts
    slurm: tuple[str, ...] = ("pmi2", "pmix")  # values for srun's --mpi, the best first
    adds_half_since: int = 0  # major version whose reductions know 16-bit floats


_RECORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
KINDS = {key: msgspec.convert({"key": key, **record}, MpiKind) for key, record in _RECORDS.items()}
ALIASES = {"impi": "intel", "intelmpi": "intel", "intel-mpi": "intel", "ompi": "openmpi", "open-mpi": "openmpi"}


def short_name(version: str) -> str:
    """Return a library's name such as `MPICH 5.0.2`; its first words where the library is not known."""
    for kind in KINDS.values():
        if match := re.search(kind.version, version, re.IGNORECASE):
            return f"{kind.name} {match[1].rstrip(',')}"
    return " ".join(version.replace("\0", " ").split()[:4])


def adds_half(version: str) -> bool:
    """Whether a library that says this of itself can add 16-bit floats; one that cannot ends in a fault."""
    for kind in KINDS.values():
        if match := re.search(kind.version, version, re.IGNORECASE):
            return int((re.match(r"\d+", match[1]) or "0")[0]) >= kind.adds_half_since
    return False


LIBMPI, ABI = "MPI4PY_LIBMPI", "MPI4PY_MPIABI"  # variables that tell mpi4py which library to load
_TIMEOUT = 10.0  # seconds for a launcher to say whose it is
_OPEN_MPI = "OMPI_COMM_WORLD_SIZE"  # a variable that only its launcher sets
_DAEMONS = ("orted", "orterun", "prted", "prterun", "mpirun", "mpiexec", "hydra", "pmi_proxy")  # parents of ranks


@dataclass(frozen=True)
class Library:
    """An MPI library on this machine, and the launcher that belongs to it."""

    kind: MpiKind
    launcher: Path
    file: Path | None  # None: the one that mpi4py loads if nobody tells it
    platform: ClassVar[str] = "cpu"  # whose ranks load it
    product: ClassVar[str] = "mpi"
    changes: ClassVar[Mapping[str, str]] = {}  # of the environment, besides those of `environment`

    @property
    def key(self) -> str:
        """Its word for --mpi."""
        return self.kind.key

    def command(self, ranks: int) -> list[str]:
        """Return the command that starts `ranks` ranks; the program follows."""
        name, *options = self.kind.silent or [""]
        silent = self.launcher.with_name(name) if name else self.launcher
        start = [str(silent), *options] if name and silent.exists() else [str(self.launcher), *self.kind.options]
        return [*start, "-n", str(ranks)]

    def environment(self, changed: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the ranks; what a user has set stays."""
        variables = {**self.kind.environment, **changed}
        if self.file:
            variables.pop(ABI, None)
            variables[LIBMPI] = str(loadable(self.file))
        return variables

    @property
    def own(self) -> bool:
        """Whether it is the one that ranks load if nobody tells them."""
        if self.file is None:
            return True
        usual = own()
        file = usual.file or _file_of(usual.kind, usual.launcher)
        return file is not None and file.resolve() == self.file.resolve()


@cache
def loadable(file: Path) -> Path:
    """Return the library that mpi4py has to load for this one: itself if it has the name that mpi4py needs."""
    if not re.match(r"libmpi(ch|_gnu)\b.*\.so", file.resolve().name):
        return file

    # mpi4py's build for MPICH's interface needs libmpi.so.12, and the linker knows what is loaded by the name that it
    # gives itself: Debian's is libmpich.so.12, Cray's libmpi_gnu.so.12.  So an empty library of the right name is made
    # that leads to it.
    linked = ("-Wl,-soname,libmpi.so.12", "-Wl,--no-as-needed", f"-Wl,-rpath,{file.parent}", str(file))
    return compiler.host_library(str(compiler.own_folder() / "host/libmpi.cpp"), linked)


def own(environment: Mapping[str, str] = os.environ) -> Library:
    """Return the library that mpi4py loads by default: the wheel's next to our own Python, or the system's.

    mpi4py gets the path of the system's, since what was only unpacked lies where no loader looks.
    """
    # If MPI4PY_LIBMPI names another, that one with its own launcher: a launcher of another kind ends in an abort.
    named = environment.get(LIBMPI, "")
    for word in [kind.key for kind in KINDS.values() if named in kind.files] or [named] * (os.sep in named):
        with suppress(UsageError):  # of a library that nobody here knows, the launcher is whichever is there
            return find(word, environment)
    sibling = Path(sys.executable).with_name("mpiexec")
    absolute = filter(os.path.isabs, environment.get("PATH", os.defpath).split(os.pathsep))
    path = str(sibling) if sibling.exists() else shutil.which("mpiexec", path=os.pathsep.join(absolute))
    if not path:
        raise PlatformError("no mpiexec next to this Python or on the path; fix: pip install mpich mpi4py")
    kind = _kind_of_launcher(Path(path)) or KINDS["mpich"]

    # mpi4py finds the library by itself if it is the wheel's, or if the user has named one.
    by_itself = sibling.exists() or environment.get(LIBMPI) or environment.get(ABI)

    # If two wheels are installed, mpiexec is the later one's, and mpi4py loads the first of these files.
    kinds = [_kind_of_file(sibling.parents[1] / "lib" / name) for name in ("libmpi.so", "libmpi.so.12", "libmpi.so.40")]
    if sibling.exists() and any(kinds) and not (named or environment.get(ABI)):
        kind = next(filter(None, kinds))
        launchers = sibling, *map(sibling.with_name, kind.launchers)
        path = next((str(each) for each in launchers if _is(kind, each)), None)
        if not path:
            raise PlatformError(f"mpi4py loads {kind.name}, and {sibling} belongs to another; fix: {kind.install}")
    return Library(kind, Path(path), None if by_itself else _file_of(kind, Path(path)))


def find(word: str, environment: Mapping[str, str] = os.environ) -> Library:
    """The library that a word of `--mpi` means: a kind's name, or where one is (its folder, launcher or file).

    UsageError where there is none, with the choices and how to get it.
    """
    if os.sep in word or word.startswith("~"):
        return _at(Path(word).expanduser())
    key = ALIASES.get(word.lower(), word.lower())
    if key not in KINDS:
        raise unknown("MPI library", word, (*KINDS, "a folder with bin/mpiexec", "a libmpi.so"))
    kind = KINDS[key]
    for launcher in _launchers(kind, environment):
        if _is(kind, launcher) and (file := _file_of(kind, launcher)):
            return Library(kind, launcher, file)
    raise UsageError(f"no {kind.name} on this machine; fix: {kind.install}")


def _at(path: Path) -> Library:
    """The library in a folder, or the one that a launcher or a file belongs to."""
    if not path.exists():
        raise UsageError(f"--mpi {path} does not exist; give a folder with bin/mpiexec, or a libmpi.so")
    file = path.absolute() if path.is_file() and ".so" in path.name else None
    for kind in KINDS.values():
        if file and _kind_of_file(file) is not kind:
            continue
        for launcher in _launchers_at(path, kind):
            if _is(kind, launcher) and (library := file or _file_of(kind, launcher)):
                return Library(kind, launcher, library)
    names = ", ".join(kind.name for kind in KINDS.values())
    raise UsageError(
        f"--mpi {path}: no launcher and library of one of {names} belong to it; "
        "give a folder with bin/mpiexec, or a libmpi.so"
    )


def _launchers_at(path: Path, kind: MpiKind) -> list[Path]:
    """Return the launchers that a path names: itself, or those in a folder, or those installed next to a library."""
    if path.is_file() and ".so" not in path.name:
        return [path.absolute()] if os.access(path, os.X_OK) and path.name.startswith("mpi") else []
    folders = [path.absolute()] if path.is_dir() else list(path.absolute().parents)[1:4]
    paths = (folder / "bin" / name for folder in folders for name in kind.launchers)
    return [launcher for launcher in paths if launcher.exists()]


def _launchers(kind: MpiKind, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield where the launcher of a kind may be, the nearest first."""
    # Next to this Python, by the library's own variables, on the path, and at the usual places.
    roots = [Path(sys.executable).parent]
    roots += [Path(environment[name], "bin") for name in kind.roots if environment.get(name)]
    path = map(Path, environment.get("PATH", os.defpath).split(os.pathsep))
    roots += [entry for entry in path if entry.is_absolute()]
    roots += [Path(folder, "bin") for folder in kind.places]
    yield from (root / name for root in dict.fromkeys(roots) for name in kind.launchers if (root / name).exists())


def _is(kind: MpiKind, launcher: Path) -> bool:
    return bool(re.search(kind.launcher, _says(launcher)))


def _kind_of_launcher(launcher: Path) -> MpiKind | None:
    """Return the library kind of a launcher; where several share it, the kind of the library next to it."""
    kinds = [kind for kind in KINDS.values() if _is(kind, launcher)]
    return next((kind for kind in kinds if _file_of(kind, launcher)), kinds[-1] if kinds else None)


@cache
def _says(launcher: Path) -> str:
    """Return what a launcher says of itself; nothing if it does not start or hangs."""
    with suppress(PlatformError):
        _, output, errors = compiler.ask([str(launcher), "--version"], _TIMEOUT, "")
        return output + errors
    return ""


def _file_of(kind: MpiKind, launcher: Path) -> Path | None:
    """Return the library of that kind in the folder where a launcher was installed, or None."""
    for root in dict.fromkeys((launcher.parent.parent, launcher.resolve().parent.parent)):
        folders = [root / "lib", root / "lib64", *sorted((root / "lib").glob("*-linux-gnu"))]
        for file in (folder / name for folder in folders for name in kind.files):
            if file.exists() and _kind_of_file(file) is kind:
                return file
    return None


@cache
def _kind_of_file(file: Path) -> MpiKind | None:
    """Return the kind of a library by the marks in its file, or None."""
    try:
        content = file.read_bytes()
    except OSError:
        return None

    # The first of several marks, since what is made of MPICH has MPICH's too, which is the last in the table.
    return next((kind for kind in KINDS.values() if kind.mark.encode() in content), None)


def of_launcher(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the library of the launcher that started this process, where mpi4py would load another one; else None.

    If MPI4PY_LIBMPI names a file, that one.  PlatformError if mpi4py's library cannot work with the launcher, and the
    launcher's is not to be found.
    """
    if environment.get(LIBMPI) or environment.get(ABI):  # the user knows better
        return Path(environment[LIBMPI]) if os.sep in environment.get(LIBMPI, "") else None
    by_open_mpi, usual = _OPEN_MPI in environment, None
    with suppress(PlatformError):  # srun's ranks need no mpiexec
        usual = own(environment)

    # The launcher's own library, unless mpi4py finds that by itself.
    mine = _file_of(usual.kind, usual.launcher) if usual and not usual.file else None
    for daemon in _ancestors():
        for kind in KINDS.values():
            if (kind.key == "openmpi") == by_open_mpi and (file := _file_of(kind, daemon)):
                return None if mine and file.resolve() == mine.resolve() else file
    if by_open_mpi and usual and usual.kind.key != "openmpi":
        raise PlatformError(
            f"Open MPI's launcher started this, and mpi4py loads {usual.kind.name}, which that cannot start; fix: "
            f"{usual.launcher} instead of it, or {LIBMPI}=/path/to/libmpi.so.40"
        )
    return None


def _ancestors() -> Iterator[Path]:
    """Yield the programs of launchers among this process's ancestors, the nearest first."""
    import psutil

    for process in psutil.Process().parents():
        try:
            program = Path(process.exe())
        except psutil.Error:
            return
        if any(name in program.name for name in _DAEMONS):
            yield program
