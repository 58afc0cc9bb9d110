"""Where processes that were started without MPI learn how to reach the first one: torch's store, or a folder."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from collbench.errors import PlatformError
from collbench.host import launcher
from collbench.host.launcher import RENDEZVOUS
from collbench.platforms.socket_processes import Rendezvous

_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")


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


_STORE = """
import datetime, sys, torch.distributed
host, port, starts, seconds, key, text = sys.argv[1:]
timeout = datetime.timedelta(seconds=float(seconds))
store = torch.distributed.TCPStore(host, int(port), is_master=starts == "True", wait_for_workers=False, timeout=timeout)
if text:
    store.set(key, text)
    print("left", flush=True)
    sys.stdin.read()
else:
    print(store.get(key).decode())
"""


class TorchStore(Rendezvous):
    """The TCPStore at MASTER_ADDR:MASTER_PORT, which torchrun has there already, or the first process starts.

    A child process asks it: torch would bring an NCCL of its own, which CuPy would use then.
    """

    def __init__(self, environment: Mapping[str, str], seconds: float) -> None:
        host, port = (environment[name] for name in _ADDRESS)
        self.what = f"torch's store at {host}:{port}"
        starts = environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        self._words = host, port, str(starts), str(seconds), f"collbench/{launcher.start(environment)}"
        self._child: subprocess.Popen[str] | None = None

    def leave(self, text: str) -> None:
        """Set the key, which restarts of torchrun have different, and keep the store until `close`."""
        self._child = self._start(*self._words, text)
        assert self._child.stdout
        if self._child.stdout.readline() != "left\n":
            self._refuse(self._child)

    def find(self) -> str:
        """Wait for the key."""
        host, port, _, *rest = self._words
        child = self._start(host, port, "False", *rest, "")
        text, errors = child.communicate()
        if child.returncode:
            self._refuse(child, errors)
        return text

    def _start(self, *words: str) -> "subprocess.Popen[str]":
        path = os.pathsep.join(filter(None, sys.path))  # where this process would find torch
        command = [sys.executable, "-P", "-c", _STORE, *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=os.environ | {"PYTHONPATH": path}
        )

    def _refuse(self, child: "subprocess.Popen[str]", errors: str = "") -> NoReturn:
        errors = errors or child.communicate()[1]
        found = re.search(r"^\S*(?:Error|Exception): (.*)", errors, re.MULTILINE)
        raise PlatformError(f"{self.what} cannot be reached: {found[1] if found else errors.strip()[-200:]}")

    def close(self) -> None:
        """End the child that has the store."""
        if self._child:
            self._child.communicate()
