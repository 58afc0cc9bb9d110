"""`python -m collbench` is `collbench`."""

import sys

from collbench.host.isolation import isolate

if not sys.flags.safe_path:
    del sys.path[0]  # the working folder: what lies there is no part of the command
warning = isolate()

from collbench.cli import main  # noqa: E402

main(warning)
