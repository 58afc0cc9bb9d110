// Exercise 7, two-shot: every rank adds up one part of the array, its shard, and writes the sums to all ranks.
//
// Given, as in exercise 6:
//
//   world.ranks     the number of ranks: 0, 1, ... world.ranks - 1
//   call.rank       this rank
//   call.meet(n)    wait until all ranks have called meet(n); then every rank sees the others' earlier writes.
//                   Numbers grow within a call and are at most 3.  All threads of a rank call it.
//   combine(a, b)   a + b
//
// A call may be in place: then each rank's result is the same memory as its input.
#include "flags.cuh"

// The input of a rank, which every rank may read: `count` elements.
__device__ inline const T* input_of(const World& world, unsigned rank) { return (const T*)world.send[rank]; }

// The result of a rank, which every rank may write: `count` elements.
__device__ inline T* result_of(const World& world, unsigned rank) { return (T*)world.receive[rank]; }

// Element i of all ranks' inputs, added up.
__device__ inline T sum_at(const World& world, u64 i) {
  T sum = input_of(world, 0)[i];
  for (unsigned rank = 1; rank < world.ranks; rank++) sum = combine(sum, input_of(world, rank)[i]);
  return sum;
}

// The first element of a rank's shard.  A shard ends where the next one begins, and the last one ends at `count`: so
// shard_begin(count, ranks, 0) must be 0, and shard_begin(count, ranks, ranks) must be `count`.
__device__ inline u64 shard_begin(u64 count, unsigned ranks, unsigned rank) {
  // YOUR CODE
  // The count need not be a multiple of the ranks, and may be smaller.
  return 0;
}

extern "C" __global__ void __launch_bounds__(512, 1) two_shot(PARAMETER(World) world, PARAMETER(u64) count) {
  const Call call(world);
  const u64 begin = shard_begin(count, world.ranks, call.rank);
  const u64 end = shard_begin(count, world.ranks, call.rank + 1);

  // The threads of a rank share its shard: this thread takes begin + first, begin + first + threads, ...
  const u64 first = call.block * blockDim.x + threadIdx.x, threads = world.blocks * blockDim.x;

  // YOUR CODE
  // Write the sum of each element of this rank's shard to the results of all ranks; and two meetings.
  (void)begin, (void)end, (void)first, (void)threads;  // remove this line: it keeps the compiler quiet

  call.leave();
}
