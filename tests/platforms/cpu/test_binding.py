"""Which core each rank is bound to, on machines that files under a made-up root describe."""

from pathlib import Path

from collbench.platforms.cpu import choose_cores, core_order

CPU = "sys/devices/system/cpu/cpu{}/{}"


def machine(packages: list[list[list[int]]]) -> dict[str, str]:
    """The files of a machine: packages of cores, each of one hardware thread or several; a cache a package."""
    files = {}
    for cores in packages:
        package = ",".join(str(thread) for core in cores for thread in core)
        for core in cores:
            for thread in core:
                files[CPU.format(thread, "topology/core_siblings_list")] = package
                files[CPU.format(thread, "topology/thread_siblings_list")] = ",".join(map(str, core))
                files[CPU.format(thread, "cache/index3/level")] = "3"
                files[CPU.format(thread, "cache/index3/shared_cpu_list")] = package
    return files


TWO_SOCKETS = [[[0, 4], [1, 5]], [[2, 6], [3, 7]]]
"""As most servers number them: first a thread of every core, then the second ones."""

CASES = (
    ("one after the other, SMT siblings last", TWO_SOCKETS, range(8), {}, (0, 1, 2, 3, 4, 5, 6, 7)),
    ("a busy core after idle ones", TWO_SOCKETS, range(8), {1: 0.9}, (0, 2, 3, 1, 4, 6, 7, 5)),
    ("a core with a busy sibling too", TWO_SOCKETS, range(8), {5: 0.9}, (0, 2, 3, 1, 4, 6, 7, 5)),
    ("a little use is none", TWO_SOCKETS, range(8), {0: 0.1}, (0, 1, 2, 3, 4, 5, 6, 7)),
    ("siblings are neighbours by number", [[[0, 1], [2, 3]]], range(4), {}, (0, 2, 1, 3)),
    ("packages take turns by number", [[[0], [2]], [[1], [3]]], range(4), {}, (0, 2, 1, 3)),
    ("only what may be used", TWO_SOCKETS, (1, 3, 5), {}, (1, 3, 5)),
    ("nothing is known", [], (2, 0, 1), {}, (0, 1, 2)),
)


def test_ranks_take_cores_in_this_order(tmp_path: Path) -> None:
    for number, (name, packages, usable, busy, expected) in enumerate(CASES):
        root = tmp_path / str(number)
        for path, text in machine(packages).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"{text}\n")
        assert core_order(usable, busy, root) == expected, name


def test_more_ranks_than_cores_are_not_bound() -> None:
    assert choose_cores(10_000) == ()
    assert len(set(choose_cores(1))) == 1
