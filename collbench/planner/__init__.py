"""Plans a training run: layouts that fit, their step time, memory and cost, from curves of collectives.

`plan` is the front for programs; `collbench train` is the same for people.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collbench.planner.search import Plan, plan

__all__ = ["Plan", "plan"]


def __getattr__(name: str) -> Any:
    """The front, imported once it is asked for: pictures of a pipeline need none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from collbench.planner import search

    return getattr(search, name)
