"""Where processes that were started without MPI learn how to reach the first one: torch's store, or a folder."""

import importlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collbench.errors import PlatformError
from collbench.host import launcher
from collbench.host.launcher import RENDEZVOUS
from collbench.platforms.socket_processes import Rendezvous

_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
_KEY = "collbench/first"


def usual(seconds: float, environment: Mapping[str, str] = os.environ) -> Rendezvous:
    """Return the place that the environment names: a folder, or torch's store.

    Raises:
        PlatformError: It names none, with what to do.

    """
    if folder := environment.get(RENDEZVOUS):
        return Folder(Path(folder).expanduser())
    if missing := [name for name in _ADDRESS if not environment.get(name)]:
        why = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not set"
    elif not find_spec("torch"):
        why = "torch, whose store they would use, is not installed"
    else:
        return TorchStore(environment, seconds)
    raise PlatformError(
        f"the processes of this launcher cannot find each other: no MPI started them, and {why}; "
        "fix: --rendezvous FOLDER, which all of them see, or mpirun"
    )


class Folder(Rendezvous):
    """A folder that all processes see; each start has its own file there, as far as launchers tell starts apart."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"collbench-{launcher.start() or 'first'}.json"
        self.what = str(folder)

    def leave(self, text: str) -> None:
        """Write the file whole, for this user alone."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(self._path)
        except OSError as error:
            raise PlatformError(f"cannot write to {self.what}: {error.strerror}; choose another --rendezvous") from None

    def find(self) -> str:
        """Read the file, if it is this user's; the folder is listed before, or a network's would not be asked again."""
        with suppress(OSError):
            list(self._path.parent.iterdir())
            with self._path.open(encoding="utf-8") as file:
                if os.fstat(file.fileno()).st_uid == os.getuid():
                    return file.read()
        return ""

    def close(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)


class TorchStore(Rendezvous):
    """The TCPStore at MASTER_ADDR:MASTER_PORT, which torchrun has there already, or the first process starts."""

    def __init__(self, environment: Mapping[str, str], seconds: float) -> None:
        store: Any = importlib.import_module("torch.distributed").TCPStore
        host, port = (environment[name] for name in _ADDRESS)
        self.what = f"torch's store at {host}:{port}"
        rank, _ = launcher.launched(environment) or (0, 1)
        starts = rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        self._key = f"{_KEY}/{launcher.start(environment)}"
        try:
            self._store = store(
                host, int(port), is_master=starts, wait_for_workers=False, timeout=timedelta(seconds=seconds)
            )
        except (RuntimeError, ValueError) as error:
            raise PlatformError(f"{self.what} cannot be reached: {str(error).splitlines()[0]}") from None

    def leave(self, text: str) -> None:
        """Set the key; restarts of torchrun have others."""
        self._store.set(self._key, text)

    def find(self) -> str:
        """Wait for the key."""
        try:
            return str(self._store.get(self._key), "utf-8")
        except RuntimeError:
            return ""

    def close(self) -> None:
        """Leave it: others may not have read it to the end, and the store ends with its process."""
