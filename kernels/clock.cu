// Reads the device's clock of traced kernels.  The host relates it to its own, since the clocks of several GPUs do not
// agree (kernels/trace.cuh).  Any grid: one thread counts.
// Launched by collbench/platforms/gpu/platform.py.
#include "trace.cuh"

extern "C" __global__ void tell_clock(PARAMETER(u64) into) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *(u64*)into = shared_clock();
}
