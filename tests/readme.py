"""The README's blocks of predictions: `python -m tests.readme` writes them anew, as the commands in them print."""

import os
import re
import subprocess
import sys
import tempfile

from tests.conftest import ROOT

README = ROOT / "README.md"
BLOCK = re.compile(r"\$ collbench (predict [^\n]*)\n(.*?)\n```", re.DOTALL)


def printed(arguments: str) -> str:
    """What such a command prints of its results."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "collbench", *arguments.split(), "--no-plot"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout.strip().rpartition("\nrun file:")[0].rstrip()


if __name__ == "__main__":
    README.write_text(BLOCK.sub(lambda match: f"$ collbench {match[1]}\n{printed(match[1])}\n```", README.read_text()))
