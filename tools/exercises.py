"""Judges every answer many times beside a busy loop: `python -m tools.exercises --times 20 [NUMBER ...]`.

A solution must pass each time, a wrong answer fail each time with a text that names the mistake.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from collbench.commands.exercise.records import exercises
from tests.commands.exercise.answers import Answer, answers


def tried(answer: Answer, times: int) -> tuple[int, float, str]:
    """How often it was judged as it should be, the longest judgement in seconds, and the first complaint."""
    right, longest, first = 0, 0.0, ""
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            complaint = answer.complaint(answer.judged(Path(folder)))
            longest = max(longest, time.perf_counter() - began)
        right += not complaint
        first = first or complaint
    return right, longest, first


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("numbers", type=int, nargs="*")
    given = parser.parse_args()
    failed = False
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        print(f"{'exercise':<22} {'answer':<48} {'as it should':>12}  longest")
        wanted = [one for one in exercises() if not given.numbers or one.number in given.numbers]
        for title, answer in ((f"{one.number} {one.title}", answer) for one in wanted for answer in answers(one)):
            right, longest, first = tried(answer, given.times)
            failed = failed or right < given.times
            print(f"{title:<22} {answer.name:<48} {right:>6} of {given.times:<2}  {longest:5.1f} s", flush=True)
            if first:
                print(f"    {first}", flush=True)
    finally:
        busy.kill()
        busy.wait()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
