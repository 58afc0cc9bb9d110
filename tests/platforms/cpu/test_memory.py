"""What ranks may take of a machine, by made-up files of /proc and /sys: the least limit counts, and is named."""

import pytest

from collbench.errors import PlatformError
from collbench.platforms import cpu
from collbench.platforms.cpu import window
from tests.conftest import Tree

GIB = 2**30
MACHINE = {"proc/meminfo": f"MemTotal: {16 * 2**20} kB\nMemAvailable: {8 * 2**20} kB\n"}
NESTED = {  # a job's group may have no limit of its own within one that has
    "proc/self/cgroup": "0::/job/step\n",
    "sys/fs/cgroup/job/step/memory.max": "max\n",
    "sys/fs/cgroup/job/step/memory.current": "5\n",
    "sys/fs/cgroup/job/memory.max": str(GIB),
    "sys/fs/cgroup/job/memory.current": "0\n",
}
VERSION_1 = {  # Docker shows the container's group at the mount, under a path that is the host's
    "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu:/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": str(GIB),
    "sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB // 2),
    "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 4096\n",
}


def group(limit: object, used: object) -> dict[str, str]:
    files = {"memory.max": str(limit), "memory.current": str(used)}
    return {"proc/self/cgroup": "0::/\n"} | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}


def test_a_control_group_may_give_less_than_the_machine(tree: Tree) -> None:
    assert window.room(tree(MACHINE))[:2] == (8 * GIB, "this machine")
    assert window.room(tree(MACHINE | group(10, 20))).free == 0, "over its limit"
    stat = {"sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {GIB // 4}\nactive_file 7\n"}
    room = window.room(tree(MACHINE | group(2 * GIB, GIB) | stat))
    assert room[:2] == (GIB + GIB // 4, "its control group")
    assert "--memory" in room.fix


@pytest.mark.parametrize(("files", "free"), [(NESTED, GIB), (VERSION_1, GIB // 2 + 4096)], ids=["nested", "version 1"])
def test_the_lowest_group_on_the_way_up_counts(tree: Tree, files: dict[str, str], free: int) -> None:
    assert window.room(tree(MACHINE | files)).free == free


def test_no_limit_is_none_nor_is_what_cannot_be_read(tree: Tree) -> None:
    for limit in ("max", "9223372036854771712", "nonsense"):
        old = {"proc/self/cgroup": "0::/\n4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": limit}
        files = MACHINE | group(limit, 1) | old | {"sys/fs/cgroup/memory/memory.usage_in_bytes": "1"}
        assert window.room(tree(files)).where == "this machine", limit


def test_what_does_not_fit_is_refused_with_numbers_and_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "room", lambda: window.Room(GIB, "its control group", "raise its limit"))
    cpu.refuse_too_large(GIB // 2, 2)
    with pytest.raises(PlatformError) as refusal:
        cpu.refuse_too_large(GIB // 2 + 1, 2)
    assert str(refusal.value) == (
        "2 ranks need 1 GiB of shared memory and its control group has 1 GiB left: "
        "lower -e or --ranks, or raise its limit"
    )


def test_more_ranks_than_cores_start_or_memory_holds_are_refused_with_what_limits_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cores, room, most, why in ((2, 64 * GIB, 128, "2 cores"), (64, GIB, 21, "its control group has 1 GiB")):
        monkeypatch.setattr("os.sched_getaffinity", lambda process, cores=cores: set(range(cores)))
        monkeypatch.setattr(window, "room", lambda room=room: window.Room(room, "its control group", "raise it"))
        ranks, limit = cpu.most_ranks()
        assert ranks == most
        assert why in limit
    monkeypatch.setattr(window, "room", lambda: window.Room(0, "this machine", ""))
    assert cpu.most_ranks()[0] == 2, "memory for the default is judged by the sweep"
