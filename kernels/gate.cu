// Holds a device's streams back until the host has enqueued everything, so that all ranks start together.
// One block of one thread; gives up after `tries`, since the host may have died, and says so in the word behind.
// Launched by collbench/platforms/gpu/timing.py.
#include "flags.cuh"

extern "C" __global__ void gate(PARAMETER(u64) open, PARAMETER(u64) tries) {
  Flag* const word = (Flag*)open;
  for (u64 i = 1; i < tries; i++) {
    if (load_acquire(word)) return;
    relax(i, 1);
  }
  store_release(word + 1, 1);
}
