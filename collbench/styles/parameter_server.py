"""`parameter-server`: after every step rank 0 adds all gradients and hands the sum to all.

The synchronous half of what Li et al. (OSDI 2014) describe; `asynchronous` is the other one.
"""

from collbench.styles import Style
from collbench.styles.ring import by

STYLE = Style(
    name="parameter-server",
    summary="gradients added by rank 0 after every step",
    prepare=by("parameter-server"),
    uses=("parameter-server",),
    order=2,
)
