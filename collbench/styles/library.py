"""`library`: after every step the gradients of all ranks are added by the MPI library's all-reduce."""

from collbench.styles import Style
from collbench.styles.ring import by

STYLE = Style(
    name="library",
    summary="gradients added by the MPI library after every step",
    prepare=by("mpi"),
    uses=("mpi",),
    order=0,
)
