"""Where and with what a run was measured, for its header: an allow-list, since an environment holds secrets."""

import os
import platform
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from collbench import __version__
from collbench.runfile.header import Environment

_PREFIXES = ("NCCL_", "CUDA_", "MPIR_CVAR_", "UCX_", "COLLBENCH_KERNELS", "COLLBENCH_NCCL")
"""Variables that change what is measured; all others stay out."""


@dataclass(frozen=True)
class Setting:
    """A change of the environment: variables by name, and their values; None where one shall not be set."""

    changes: tuple[tuple[str, str | None], ...] = ()

    def applied(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment with this change."""
        wanted = {**environment, **dict(self.changes)}
        return {name: value for name, value in wanted.items() if value is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that it names."""
        return tuple(name for name, _ in self.changes)


UNCHANGED = Setting()


def variables(environment: Mapping[str, str] = os.environ, named: Collection[str] = ()) -> dict[str, str]:
    """Those that matter, as they are in the process that measures: a platform may have set some itself.

    `named` are others that the user spoke of, which are no secret then.
    """
    return {name: value for name, value in sorted(environment.items()) if name.startswith(_PREFIXES) or name in named}


def describe(versions: Mapping[str, str], chosen: Mapping[str, str]) -> Environment:
    """Host, versions and variables; both as the ranks say."""
    return Environment(
        host=platform.node(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions={"collbench": __version__, "python": sys.version.split()[0], **versions},
        variables=dict(chosen),
    )
