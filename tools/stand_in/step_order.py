"""The order of a step's parts on the streams of made-up GPUs: steps are carried out by toys that note when they run.

A toy runs on the stream of a device's first rank, as the kernels of ranks that wait for each other do, or on every
rank's own, as NCCL does.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.commands.step.schedules import SCHEDULES, Parts
from collbench.commands.step.work import Step
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.platforms.interface import Prepared
from tools.stand_in.cuda import Machine, Stream

STREAM = "stream"
STEP = Step(5, 8, bucket=1024)
NBYTES = 2800  # two whole buckets and a part of one
STEPS = 3


def a_case(ranks: int, step: Step = STEP, in_place: bool = False, nbytes: int = NBYTES) -> Case:
    return Case(COLLECTIVES["allreduce"], nbytes, DATATYPES["float"], REDUCTIONS["sum"], 0, ranks, in_place, step)


def toy(platform: Any, bucket: int, everywhere: bool) -> Prepared:
    """An operation that notes what streams do: those of every rank, or of each device's first."""
    places = platform._places
    ranks = platform.local if everywhere else [places.on(device)[0] for device in places.devices]

    def launch(launches: int) -> None:
        for _ in range(launches):
            for rank in ranks:
                stream = platform.streams[rank].use()
                stream.enqueue(lambda stream=stream: run(stream))

    def run(stream: Stream) -> None:
        stream.machine.noted(f"{bucket} begins", stream)
        stream.machine.noted(f"{bucket} ends", stream)

    return Prepared(launch)


def carry_out(platform: Any, schedule: str, everywhere: bool, steps: int = STEPS) -> list[tuple[str, Stream]]:
    """Return the actions of streams in a number of steps of three buckets."""
    case = a_case(platform.ranks, replace(STEP, schedule=schedule))
    products = platform.compute.products(STEP.size)
    operations = [toy(platform, bucket, everywhere) for bucket in range(3)]
    parts = Parts(case, platform, products, operations)
    step = SCHEDULES[schedule].prepare(parts)
    platform.clock.moment(0)  # the clock of a device is set once
    platform.launcher.synchronize()
    platform._cuda.cupy.asarray.__self__._machine.log.clear()
    for _ in range(steps):
        step()
    platform.launcher.synchronize()
    log: list[tuple[str, Stream]] = platform._cuda.cupy.asarray.__self__._machine.log
    return log


def out_of_order(log: Sequence[tuple[str, Stream]], platform: Any, schedule: str) -> list[str]:
    """Return the actions that came too early: a bucket before its product, a product before the last step's end.

    A device's streams are counted together: what its ranks communicate they may communicate in one kernel.
    """
    said = []
    for device in platform._places.devices:
        ranks = platform._places.on(device)
        computing = {platform.compute.products(STEP.size)._of[rank].computing.stream: rank for rank in ranks}
        made = dict.fromkeys(ranks, 0)
        ended, most = 0, 3 * sum(stream.device_id == device for what, stream in log if what == "0 ends") // STEPS
        for what, stream in log:
            if stream.device_id != device:
                continue
            if stream in computing:
                rank = computing[stream]
                step, made[rank] = divmod(made[rank], STEP.products)[0], made[rank] + (what == "product ends")
                if ended < step * most:
                    said.append(f"rank {rank} computes in step {step}, before the one before has ended")
            elif what.endswith("begins"):
                bucket, step = int(what[0]), ended // most
                needed = STEP.products * step + ready(schedule, bucket)
                said += [f"{what} in step {step} before rank {rank} is ready" for rank in ranks if made[rank] < needed]
            else:
                ended += 1
    return said


def ready(schedule: str, bucket: int) -> int:
    """The products of a step behind which a bucket may go out."""
    return sum(list(STEP.shares(3, 0))[: bucket + 1]) if schedule == STREAM else STEP.products


def late(place: int) -> Callable[[Stream], Any]:
    """An order in which one stream does nothing while any other can."""
    return lambda stream: (stream.ptr == place, stream.ptr)


def early(place: int) -> Callable[[Stream], Any]:
    """An order in which one stream does whatever it can first."""
    return lambda stream: (stream.ptr != place, -stream.ptr)


def all_orders(machine: Machine) -> list[Callable[[Stream], Any]]:
    return [order(place) for place in machine.streams for order in (late, early)]
