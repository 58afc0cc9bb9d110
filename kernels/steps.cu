// Steps of one rank that the host orders: `add` and `complete` of a ring of copies; `put`, a message to another rank.
// Any grid; any length and alignment.  Launched by collbench/algorithms/ring_host.py and measure/exchanges.py.
#include "prelude.cuh"

// target[i] = target[i] (+) source[i]
extern "C" __global__ void add(PARAMETER(u64) target, PARAMETER(u64) source, PARAMETER(u64) count) {
  T* const sum = (T*)target;
  const T* const part = (const T*)source;
  const u64 packs = aligned(sum, part) ? count / Pack::LANES : 0;
  const u64 first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  INDEPENDENT
  for (u64 i = first; i < packs; i += threads) ((Pack*)sum)[i] = combine(((Pack*)sum)[i], ((const Pack*)part)[i]);
  for (u64 i = packs * Pack::LANES + first; i < count; i += threads) sum[i] = combine(sum[i], part[i]);
}

// Finish a sum: an average is divided by the number of ranks.
extern "C" __global__ void complete(PARAMETER(u64) target, PARAMETER(u64) count, PARAMETER(unsigned) ranks) {
  const u64 first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  INDEPENDENT
  for (u64 i = first; i < count; i += threads) ((T*)target)[i] = finish(((T*)target)[i], ranks);
}

// target[i] = source[i], a message that its sender stores into the memory of its receiver.
extern "C" __global__ void put(PARAMETER(u64) target, PARAMETER(u64) source, PARAMETER(u64) count) {
  const u64 packs = aligned((const T*)target, (const T*)source) ? count / Pack::LANES : 0;
  const u64 first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  INDEPENDENT
  for (u64 i = first; i < packs; i += threads) ((Pack*)target)[i] = ((const Pack*)source)[i];
  for (u64 i = packs * Pack::LANES + first; i < count; i += threads) ((T*)target)[i] = ((const T*)source)[i];
}
