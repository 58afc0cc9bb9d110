// What a device's clock says that logs of traced kernels go by, so that the host can hold it against its own: those of
// several GPUs do not agree (kernels/trace.cuh).  Any grid: one thread counts.
// Launched by collbench/platforms/gpu/platform.py.
#include "trace.cuh"

extern "C" __global__ void tell_clock(PARAMETER(u64) into) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *(u64*)into = shared_clock();
}
