// Exercise 8, pipelining: a ring whose ranks run ahead of each other, as far as there are slots.
//
// Each rank owns a FIFO of SLOTS slots, which the previous rank fills and this rank empties.  Piece number n, counted
// from 0 since the program began, goes through slot n % SLOTS.  Two flags in each rank's window count pieces:
//
//   arrived   pieces that the previous rank has put into my FIFO
//   room      pieces of mine that the next rank has taken out of its FIFO
//
//   await(flag, n, world, error)   wait until a flag of mine has reached n or more.
//                                  n may be negative while fewer than SLOTS pieces have been sent.
//   publish(flag, n)               set a flag of another rank to n, after all earlier work of my threads
#include "flags.cuh"

const unsigned SLOTS = 2;  // a power of two
const u64 SLOT = 1024;  // elements of a slot

struct Ring {
  const World& world;
  Flag *arrived, *room, *error;  // mine, to await
  Flag *next_arrived, *previous_room;  // the neighbours', to publish
  unsigned* own;                 // two counters of mine, kept from call to call
  T *inbox, *outbox;             // slot 0 of my FIFO, and of the next rank's
  unsigned sent, taken;          // pieces so far, in all calls

  __device__ Ring(const World& world, unsigned rank, u64 fifo) : world(world) {
    const unsigned next = (rank + 1) % world.ranks, previous = (rank + world.ranks - 1) % world.ranks;
    const unsigned block = world.block();
    Channel& channel = world.window_of(rank)->channel[block];
    arrived = channel.arrived.word, room = channel.room.word, own = channel.own.word;
    error = world.window_of(rank)->error.word;
    next_arrived = world.window_of(next)->channel[block].arrived.word;
    previous_room = world.window_of(previous)->channel[block].room.word;
    inbox = (T*)(world.fifo_of(rank) + fifo) + block * SLOTS * SLOT;
    outbox = (T*)(world.fifo_of(next) + fifo) + block * SLOTS * SLOT;
    sent = own[0], taken = own[1];
  }

  // Given.  A piece: taken `from` a slot or null, plus `add` or null, goes `to` a slot or null, and to `keep` or null.
  __device__ void move(const T* from, const T* add, T* to, T* keep, u64 count) {
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
      T x = from ? from[i] : add[i];
      if (from && add) x = combine(x, add[i]);
      if (to) to[i] = x;
      if (keep) keep[i] = x;
    }
  }

  // One hop of the ring: takes a piece if `take`, and sends a piece if `send`; both at once if both.
  __device__ void hop(bool take, const T* add, bool send, T* keep, u64 count) {
    // YOUR CODE
    // Await the flags; move the piece; count in `taken` and `sent`; tell the neighbours.
  }

  // Given: keeps the counters for the next call.
  __device__ void remember() {
    __syncthreads();
    if (threadIdx.x == 0) own[0] = sent, own[1] = taken;
  }
};

// Given: the number of the `wanted` elements from `first` on that are below `count`.
__device__ inline u64 within(u64 first, u64 wanted, u64 count) {
  return first >= count ? 0 : count - first < wanted ? count - first : wanted;
}

// Given: the ring of exercise 3, for one piece of every chunk after the other.
extern "C" __global__ void __launch_bounds__(512, 1)
    pipelining(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) count) {
  const unsigned ranks = world.ranks, rank = world.rank();
  const T* const input = (const T*)world.send[rank];
  T* const result = (T*)world.receive[rank];
  Ring ring(world, rank, fifo);
  // A chunk for each rank, cut into eight pieces of 64 to SLOT elements.
  const u64 chunk = (count + ranks - 1) / ranks, eighth = (chunk + 7) / 8;
  const u64 piece = eighth < 64 ? 64 : eighth < SLOT ? eighth : SLOT;
  for (u64 at = world.block() * piece; at < chunk; at += world.blocks * piece) {
    for (unsigned step = 0; step < 2 * ranks - 1; step++) {
      const u64 first = (rank + 2 * ranks - 1 - step) % ranks * chunk + at;
      const bool take = step > 0, send = step < 2 * ranks - 2, adds = step < ranks, keeps = step + 1 >= ranks;
      const u64 length = within(first, within(at, piece, chunk), count);
      ring.hop(take, adds ? input + first : nullptr, send, keeps ? result + first : nullptr, length);
    }
  }
  // YOUR CODE: end the call
}
