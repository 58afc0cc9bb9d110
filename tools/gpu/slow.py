"""`collbench` that never comes to its end: `python -m tools.gpu.slow [sweep] MANNER ... --out FOLDER`."""

import signal
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    if "deaf" in sys.argv:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = (
        (Path(__file__).parents[2] / "results" / "cpu-2-ranks-epyc" / "run.jsonl").read_text().splitlines(keepends=True)
    )
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    if "empty" not in sys.argv:
        folder.mkdir(exist_ok=True)
        (folder / "run.jsonl").write_text("".join(lines[:4]))
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        if "empty" in sys.argv:
            sys.exit(130)
        with (folder / "run.jsonl").open("a") as file:
            file.write('{"kind": "end", "finished": "2026-01-31T12:00:00+00:00", "status": 130}\n')
        sys.exit(130)
