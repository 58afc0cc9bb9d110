"""Which implementations run on GPUs that several processes hold, and which need all ranks in one."""

from collbench.implementations import implementations
from collbench.platforms.gpu import multicast

ONE_PROCESS = ("ring-events", *multicast.USERS)
ON_GPU = [
    implementation
    for implementation in implementations().values()
    if "gpu" in implementation.platforms and implementation.name not in ONE_PROCESS
]
