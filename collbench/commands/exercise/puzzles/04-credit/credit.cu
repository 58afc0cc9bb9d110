// Credit: a broadcast in pieces, through a FIFO of a few slots.  A sender may fill only a free slot.
//
//   root --pieces--> FIFO of root + 1 --pieces--> FIFO of root + 2 ...
//        <--room---                   <--room---
//
// Fill in the three places marked YOUR CODE; README.md lists the given functions.
#include "flags.cuh"

const unsigned SLOTS = 4;   // of a block, in every rank's FIFO; a power of two, since numbers wrap
const unsigned PIECE = 64;  // elements in a slot

// A block's connections from the previous rank and to the next rank.
struct Pipe {
  const World& world;
  Flag* const error;
  Channel &mine, &next, &previous;  // flags: `arrived` and `room` of one block of each of these ranks
  T *const inbox, *const outbox;    // slots: in this rank's FIFO, and in the next rank's
  unsigned sent, taken;             // pieces since the first call

  __device__ Pipe(const World& world, u64 fifo, unsigned rank)
      : world(world), error(&world.window_of(rank)->error.word[0]),
        mine(channel(rank)), next(channel(rank + 1)), previous(channel(rank + world.ranks - 1)),
        inbox(slots(rank, fifo)), outbox(slots(rank + 1, fifo)),
        sent(mine.own.word[0]), taken(mine.own.word[1]) {}

  __device__ Channel& channel(unsigned rank) const {
    return world.window_of(rank % world.ranks)->channel[world.block()];
  }
  __device__ T* slots(unsigned rank, u64 fifo) const {
    return (T*)(world.fifo_of(rank % world.ranks) + fifo) + world.block() * SLOTS * PIECE;
  }

  // The slot for the piece with that number, counted since the first call; `box` is inbox or outbox.
  __device__ T* slot(T* box, unsigned number) const {
    return box;  // YOUR CODE (1): the slots are used by turns, each PIECE elements long
  }

  // Sends a piece of n elements to the next rank.
  __device__ void send(const T* from, u64 n) {
    // YOUR CODE (2): wait until `mine.room` shows a free slot.  The next rank counts there the pieces that it has taken
    // out of its FIFO; this rank has put `sent` pieces into it.
    T* const to = slot(outbox, sent);
    for (u64 i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
    ++sent;
    publish(&next.arrived.word[0], sent);
  }

  // Copies a piece of n elements from the previous rank into the result.
  __device__ void take(T* to, u64 n) {
    await(&mine.arrived.word[0], taken + 1, world, error);
    const T* const from = slot(inbox, taken);
    for (u64 i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
    ++taken;
    // YOUR CODE (3): give the slot back: `previous.room` counts the pieces that this rank has taken.
  }
};

extern "C" __global__ void __launch_bounds__(512, 1)
    credit(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) count, PARAMETER(unsigned) root) {
  const unsigned rank = world.rank();
  const bool first = rank == root, last = (rank + 1) % world.ranks == root;
  const T* const input = (const T*)world.send[rank];
  T* const result = (T*)world.receive[rank];
  Pipe pipe(world, fifo, rank);
  for (u64 at = world.block() * PIECE; at < count; at += world.blocks * PIECE) {
    const u64 n = count - at < PIECE ? count - at : PIECE;
    if (!first) pipe.take(result + at, n);
    else for (u64 i = threadIdx.x; i < n; i += blockDim.x) result[at + i] = input[at + i];
    if (!last) pipe.send(result + at, n);
  }
  __syncthreads();
  if (threadIdx.x == 0) pipe.mine.own.word[0] = pipe.sent, pipe.mine.own.word[1] = pipe.taken;  // for the next call
}
