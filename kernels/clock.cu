// Reads the device's clock that logs of traced kernels use, so that the host can relate it to its own: the clocks of
// several GPUs do not agree (kernels/trace.cuh).  Any grid: one thread counts.
// Launched by collbench/platforms/gpu/platform.py.
#include "trace.cuh"

extern "C" __global__ void tell_clock(PARAMETER(u64) into) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *(u64*)into = shared_clock();
}
