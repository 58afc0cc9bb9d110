"""What implementations are called that differ in their library only, in run files and by people."""


def labelled(implementation: str, library: str) -> str:
    """What people are shown: the library tells more than the word behind the @ does.

    Of a library that the implementation is named after, its version: `nccl: 2.30.4`.
    """
    name, (first, _, rest) = family(implementation), library.partition(" ")
    return f"{name}: {rest if first.lower() == name and rest else library}" if library else implementation


def family(implementation: str) -> str:
    """What implementations have in common that differ in their library only: `mpi` of `mpi@openmpi`."""
    return implementation.partition("@")[0]
