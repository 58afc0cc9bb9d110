// Exercise 1, meet: all ranks wait for each other.
//
// The kernel below is an all-reduce that lacks one function.  It runs once on every rank, with many threads.  A rank
// must not read the inputs of others before they are written, and must not leave while others still read its own; so
// all ranks meet twice.
#include "flags.cuh"

// The flag with which rank `from` tells rank `at` that it has come.  It is in the memory of `at`; only `from` writes
// it, and it is zero before the first call.
__device__ inline Flag* flag_of(const Call& call, unsigned at, unsigned from) { return call.met(at, from); }

// Returns when all ranks have called it with this `place`: 0 for the first meeting of a call, 1 for the second.
__device__ inline void all_meet(const Call& call, unsigned place) {
  Patience patience(call.world, call.mine->error.word, flag_of(call, call.rank, 0));  // call again() after each look
  // YOUR CODE
  // 1. Choose a number that is larger in every meeting: call.number is 1 in the first call, then 2, and so on.
  // 2. Store it in the flags of all ranks, 0 to call.world.ranks - 1.
  // 3. Wait until all ranks have stored theirs.
  // One thread can do all this, but it must begin after the other threads have finished their work, and they must wait
  // until it is done.
}

// Given.  Every rank adds all inputs, and writes the sums to its own result.
extern "C" __global__ void __launch_bounds__(512, 1) meet(PARAMETER(World) world, PARAMETER(u64) count) {
  const Call call(world);
  all_meet(call, 0);  // now all inputs are written
  const u64 first = call.block * blockDim.x + threadIdx.x, threads = world.blocks * blockDim.x;
  for (u64 i = first; i < count; i += threads) {
    T sum = ((const T*)world.send[0])[i];
    for (unsigned rank = 1; rank < world.ranks; rank++) sum = combine(sum, ((const T*)world.send[rank])[i]);
    ((T*)world.receive[call.rank])[i] = sum;
  }
  all_meet(call, 1);  // now nobody reads this rank's input
  call.leave();
}
