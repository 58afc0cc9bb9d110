"""Small programs for a campaign's stages: `python -m tools.gpu.toys NAME FILE`; FILE gets a line a start."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from tools.gpu import said

HANG = "import time; time.sleep(600)"


def good() -> int:
    said.key("41 apples")
    return said.GOOD


def bad() -> int:
    print("all was well")
    print("  apples   FAILED: a worm, of all things")
    print("  apples   FAILED: another")
    return said.BAD


def crash() -> int:
    raise ZeroDivisionError("nobody thought of it")


def skipping() -> int:
    return said.skip("no apples here")


def hang() -> int:
    """With a child that left the group, and deaf to requests to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("came as far as this", flush=True)
    subprocess.Popen([sys.executable, "-I", "-S", "-c", HANG], start_new_session=True)
    time.sleep(600)
    return said.GOOD


def orphan() -> int:
    """Ends well and leaves a process behind."""
    subprocess.Popen([sys.executable, "-I", "-S", "-c", HANG], start_new_session=True)
    return said.GOOD


if __name__ == "__main__":
    with Path(sys.argv[2]).open("a") as file:
        file.write(f"{sys.argv[1]}\n")
    sys.exit(globals()[sys.argv[1]]())
