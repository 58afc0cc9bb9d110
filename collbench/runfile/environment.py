"""Where and with what a run was measured, for its header: an allow-list, since an environment holds secrets."""

import os
import platform
import sys
from collections.abc import Collection, Mapping

from collbench import __version__
from collbench.runfile.header import Environment

_FABRICS = ("UCX_", "FI_EFA_", "FI_CXI_", "FI_PROVIDER")
_PREFIXES = ("NCCL_", "RCCL_", "CUDA_", "MPIR_CVAR_", *_FABRICS, "COLLBENCH_KERNELS", "COLLBENCH_NCCL")
"""Variables that change what is measured; all others stay out."""


Changes = Mapping[str, str | None]
"""A change of the environment: variables by name, and their values; None where one shall not be set."""


def changed(environment: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """Return the environment with these changes."""
    return {name: value for name, value in {**environment, **changes}.items() if value is not None}


def variables(environment: Mapping[str, str] = os.environ, named: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that matter, of the process that measures: a platform may have set some itself."""
    # What the user named on the command line is no secret.
    return {name: value for name, value in sorted(environment.items()) if name.startswith(_PREFIXES) or name in named}


def describe(versions: Mapping[str, str], chosen: Mapping[str, str]) -> Environment:
    """Return host, versions and variables; versions and variables are those of the ranks."""
    return Environment(
        host=platform.node(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions={"collbench": __version__, "python": sys.version.split()[0], **versions},
        variables=dict(chosen),
    )
