"""Faults seen on GPUs that are made up, whose streams and grids are threads: what is enqueued for a GPU is enqueued."""

from tools.mutants.trial import Mutant, Trial

_DIRECT, _FLAGS, _RING, _PACKETS = (f"kernels/{name}" for name in ("direct.cu", "flags.cuh", "ring.cu", "packets.cuh"))
_EVENTS = "collbench/algorithms/ring_host.py"
_LOOK = "      look_until(met(rank, i), value, world, &mine->error.word[0]);\n"
_WAIT = "  for (Patience patience(world, error, flag); load_acquire(flag) - number >= LEAD && patience.again();) {}\n"


def on_gpu(implementation: str, size: str = "4000", **changes: object) -> Trial:
    """The same trial on made-up GPUs."""
    return Trial(implementation, size, platform="gpu", **changes)  # type: ignore[arg-type]


MUTANTS = (
    Mutant("on GPUs: one-shot without its waits", _FLAGS, ((_WAIT, ""),), on_gpu("one-shot")),
    Mutant("on GPUs: meetings that wait for nobody", _FLAGS, ((_LOOK, "      ;\n"),), on_gpu("two-shot")),
    Mutant(
        "on GPUs: one-shot without the last meeting",
        _DIRECT,
        (
            (
                "  add_part(route(call, 0, call.rank, 1), count);\n"
                "  stamp_block(world, Phase::ADDED);\n"
                "  call.meet(1);\n",
                "  add_part(route(call, 0, call.rank, 1), count);\n",
            ),
        ),
        on_gpu("one-shot"),
    ),
    Mutant(
        "on GPUs: two-shot without the first meeting",
        _DIRECT,
        (("  call.meet(0);\n  if (first < count)", "  if (first < count)"),),
        on_gpu("two-shot"),
    ),
    Mutant(
        "on GPUs: stale packets believed",
        _PACKETS,
        (("if (first >> 32 != flag || second >> 32 != flag) {", "if (false) {"),),
        on_gpu("one-shot-ll"),
    ),
    Mutant(
        "on GPUs: a ring that does not wait for data",
        _RING,
        (("    if (VERBS & TAKE) await(arrived, taken + 1, world, error);\n", ""),),
        on_gpu("ring-flags"),
    ),
    Mutant(
        "on GPUs: a ring that does not wait for room",
        _RING,
        (("    if (VERBS & SEND) await(room, free, world, error);\n", ""),),
        on_gpu("ring-flags", op="broadcast"),
    ),
    Mutant(
        "on GPUs: a ring of events that does not wait for its neighbour",
        _EVENTS,
        (("                platform.launcher.after(rank, before[(rank - 1) % ranks])\n", "                pass\n"),),
        on_gpu("ring-events"),
    ),
    Mutant(
        "on GPUs: a ring of events whose input may change too early",
        _EVENTS,
        (("        platform.launcher.after(rank, behind[(rank + 1) % ranks])\n", "        pass\n"),),
        on_gpu("ring-events"),
    ),
    Mutant(
        "on GPUs: a call that only its first block carries out",
        _DIRECT,
        (
            (
                "call.block * blockDim.x + threadIdx.x, call.world.blocks",
                "threadIdx.x + (call.block ? ~0U / 2 : 0), call.world.blocks",
            ),
        ),
        on_gpu("two-shot", "64K"),
    ),
    Mutant(
        "on GPUs: the sum of the header",
        "kernels/prelude.cuh",
        (("  return E(W(a) + W(b));\n", "  return E(W(a) + W(b) + W(1));\n"),),
        on_gpu("ring-pipelined"),
    ),
    Mutant(
        "on GPUs: operations that are launched once",
        "collbench/platforms/gpu/launch.py",
        (("            for _ in range(count):\n", "            for _ in range(min(1, count)):\n"),),
        on_gpu("one-shot", "4"),
        unseen="a made-up operation takes as long as a sample should, so a sample is one launch",
    ),
    Mutant(
        "on GPUs: the root of another",
        "collbench/algorithms/nccl.py",
        (('end.whole("broadcast", end.case.root)', 'end.whole("broadcast", (end.case.root + 1) % end.case.ranks)'),),
        on_gpu("nccl", op="broadcast"),
    ),
)
