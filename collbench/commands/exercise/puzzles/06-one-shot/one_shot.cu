// Exercise 6, one-shot: every rank reads the inputs of all ranks and adds them up by itself.
//
// The kernel runs once on every rank, with many threads.  Given:
//
//   world.ranks     the number of ranks: 0, 1, ... world.ranks - 1
//   call.rank       this rank
//   call.meet(n)    wait until all ranks have called meet(n); then every rank sees the others' earlier writes.
//                   Numbers grow within a call and are at most 3.  All threads of a rank call it.
//   combine(a, b)   a + b
#include "flags.cuh"

// The input of a rank, which every rank may read and nobody may change: `count` elements.
__device__ inline const T* input_of(const World& world, unsigned rank) { return (const T*)world.send[rank]; }

// A rank's result: `count` elements.
__device__ inline T* result_of(const World& world, unsigned rank) { return (T*)world.receive[rank]; }

extern "C" __global__ void __launch_bounds__(512, 1) one_shot(PARAMETER(World) world, PARAMETER(u64) count) {
  const Call call(world);
  T* const result = result_of(world, call.rank);

  // The threads of a rank share its elements: this thread takes `first`, first + threads, first + 2 * threads, ...
  const u64 first = call.block * blockDim.x + threadIdx.x, threads = world.blocks * blockDim.x;

  // YOUR CODE
  // Write to result[i], for each of this thread's elements, the sum of element i of all ranks' inputs.
  // Before: may the inputs of the other ranks be read yet?  After: may this rank's input change yet?
  (void)result, (void)first, (void)threads, (void)count;  // remove this line: it keeps the compiler quiet

  call.leave();
}
