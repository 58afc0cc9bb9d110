// Publish: the root's array goes from rank to rank, and a flag tells that it has arrived.
//
//   root --copy--> root + 1 --copy--> root + 2 --copy--> ...     each into the result of the next rank
//   root --flag--> root + 1 --flag--> root + 2 --flag--> ...     "my copy has arrived"
//
// Fill in the three places marked YOUR CODE; README.md lists the given functions.
#include "flags.cuh"

// The flag that tells this block of rank `at` that its result has arrived.  Only the rank before `at` writes it.
__device__ inline Flag* flag_of(const World& world, unsigned at, u64 fifo) {
  return (Flag*)(world.fifo_of(at) + fifo + world.block() * sizeof(Line));
}

// Copies this block's part of `count` elements.  The threads of the block take the elements by turns.
__device__ inline void copy(const World& world, const T* from, T* to, u64 count) {
  const u64 first = world.block() * blockDim.x + threadIdx.x, step = world.blocks * blockDim.x;
  for (u64 i = first; i < count; i += step) to[i] = from[i];
}

// Raises the flag to `number`: all earlier copies of all threads of this block have arrived.
__device__ inline void tell(Flag* flag, unsigned number) {
  // YOUR CODE (1): one thread stores the number, after all threads have copied.
}

// Returns, in every thread of this block, when the flag shows `number`.
__device__ inline void wait(const Flag* flag, unsigned number, const World& world, Flag* error) {
  Patience patience(world, error, flag);  // `patience.again()` returns whether to poll again
  // YOUR CODE (2): one thread polls until it reads the number; the other threads wait for that thread.
}

extern "C" __global__ void __launch_bounds__(512, 1)
    pass_on(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) count, PARAMETER(unsigned) root) {
  const Call call(world);
  call.meet(0);  // now every rank has begun this call: its result may be written
  const unsigned rank = call.rank, next = (rank + 1) % world.ranks;
  const bool first = rank == root, last = next == root;
  T* const mine = (T*)world.receive[rank];
  T* const theirs = (T*)world.receive[next];
  Flag* const my_flag = flag_of(world, rank, fifo);
  Flag* const their_flag = flag_of(world, next, fifo);
  Flag* const error = &call.mine->error.word[0];
  const unsigned number = 2 * call.number + 1;  // new in every call, and never 0, the initial value of memory
  if (first) copy(world, (const T*)world.send[rank], mine, count);

  // YOUR CODE (3): all but the first wait; then all but the last copy and tell.
  (void)last, (void)theirs, (void)my_flag, (void)their_flag, (void)error, (void)number;  // remove this line

  call.leave();
}
