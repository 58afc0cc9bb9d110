"""Which implementations run on GPUs that several processes hold, and which need all ranks in one."""

from collbench.implementations import implementations

ONE_PROCESS = ("ring-events", *(name for name, way in implementations().items() if way.multicast))
ON_GPU = [
    implementation
    for implementation in implementations().values()
    if "gpu" in implementation.platforms and implementation.name not in ONE_PROCESS
]
