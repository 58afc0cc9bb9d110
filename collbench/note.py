"""What a reader must know of a number, as facts; their text is made where it is shown."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sharing:
    """More ranks than GPUs: what goes from one rank to another on its GPU takes no bus."""

    ranks: int
    gpus: int
    processes: bool = False  # whether a rank is a process; those of a GPU run in turns

    def __str__(self) -> str:
        who = "processes" if self.processes else "ranks"
        return f"{self.ranks} {who} share {self.gpus} GPU{'s' if self.gpus > 1 else ''}"


@dataclass(frozen=True)
class Note:
    """Facts about how a number came to be; `str` is their text, empty where nothing is out of the ordinary."""

    shared: Sharing | None = None
    oversubscribed: bool = False  # more ranks than cores
    spin: str = ""  # how a waiting rank spins, where the user said so
    picked: str = ""  # the implementation that `auto` took
    remarks: tuple[str, ...] = ()  # all else, in words
    bound: bool = False  # of a prediction: nothing measured stands behind it, so it is in no contest
    paced: bool = False  # by the host, which enqueued it more slowly than devices carried it out

    @staticmethod
    def of(*remarks: str) -> "Note":
        """A note of these remarks; empty ones are none."""
        return Note(remarks=tuple(filter(None, remarks)))

    def __or__(self, other: "Note") -> "Note":
        """Both."""
        return Note(
            self.shared or other.shared,
            self.oversubscribed or other.oversubscribed,
            self.spin or other.spin,
            self.picked or other.picked,
            self.remarks + other.remarks,
            self.bound or other.bound,
            self.paced or other.paced,
        )

    def __str__(self) -> str:
        cores = ["oversubscribed" if self.oversubscribed else "", f"--spin {self.spin}" if self.spin else ""]
        picked = f"picked {self.picked}" if self.picked else ""
        bound = "a bound" if self.bound else ""
        paced = PACED if self.paced else ""
        facts = [str(self.shared or ""), ", ".join(filter(None, cores)), picked, bound, paced, *self.remarks]
        return "; ".join(filter(None, facts))


PACED = "the GPUs waited for the host, which enqueues too slowly: compute more in a step, or a process each (mpirun)"

NO_NOTE = Note()
"""Nothing is out of the ordinary."""
