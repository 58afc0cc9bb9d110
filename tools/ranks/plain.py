"""Processes as torchrun and Kubernetes start them, without MPI: `python tools/ranks/plain.py N COMMAND...`.

Each gets RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE.  The exit status is the largest of theirs.  Once a process
has failed, the others have SECONDS=60 to end.
"""

import os
import subprocess
import sys
import time


def main() -> int:
    count, command = int(sys.argv[1]), sys.argv[2:]
    size = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    given = [os.environ | size | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    started = [subprocess.Popen(command, env=environment) for environment in given]
    deadline = float("inf")
    while None in (statuses := [process.poll() for process in started]):
        if any(statuses):
            deadline = min(deadline, time.monotonic() + float(os.environ.get("SECONDS", "60")))
        if time.monotonic() > deadline:
            for process in started:
                process.kill()
        time.sleep(0.02)
    return max(abs(process.wait()) for process in started)


if __name__ == "__main__":
    sys.exit(main())
