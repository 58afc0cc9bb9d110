// Exercise 10, beat the library: your own all-reduce, faster than the MPI library's at one or more sizes.
//
// Given, as in the earlier exercises:
//
//   world.ranks, call.rank, call.number    number of this call: 1, 2, 3, ... the same on every rank
//   call.meet(n)                           wait until all ranks have called meet(n); n from 0 to 3
//   await, publish                         flags (flags.cuh)
//   send_packets, receive_packets          8 bytes with a flag in the same store (packets.cuh)
//   load_payload, store_payload, combine_payload   8 bytes of an array: two floats; the last may be alone
//
// `call.leave(n)` ends a call that used n numbers: the next call's number is n higher.
#include "packets.cuh"

// Space in every rank's window for packets of the others.  It is zeroed once, before the first call.
const u64 ROOM = 1 << 20;  // bytes

// The input of a rank, which every rank may read: `count` elements.
__device__ inline const T* input_of(const World& world, unsigned rank) { return (const T*)world.send[rank]; }

// The result of a rank, which every rank may write: `count` elements.  In place, it is the memory of the input.
__device__ inline T* result_of(const World& world, unsigned rank) { return (T*)world.receive[rank]; }

// The place for packets of rank `from` at rank `at`: `room` pairs of packets for each call parity and each rank.
__device__ inline Packets* inbox(const World& world, u64 fifo, unsigned at, unsigned from, unsigned parity, u64 room) {
  return (Packets*)(world.fifo_of(at) + fifo) + (parity * world.ranks + from) * room;
}

// `fifo`: offset of the ROOM bytes in every window.
extern "C" __global__ void __launch_bounds__(512, 1)
    my_allreduce(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) count) {
  const Call call(world);
  // Threads of this rank share its elements: this thread takes `first`, first + threads, first + 2 * threads, ...
  const u64 first = call.block * blockDim.x + threadIdx.x, threads = world.blocks * blockDim.x;

  // YOUR CODE
  // Every result is the sum of all inputs.  Which algorithm has the fewest hops for a small message?
  (void)fifo, (void)count, (void)first, (void)threads;  // remove this line: it keeps the compiler quiet

  call.leave();
}
