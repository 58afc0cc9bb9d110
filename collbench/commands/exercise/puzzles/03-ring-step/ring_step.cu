// Ring step: the ring all-reduce.  Waits and flags are given; you choose the chunks of each step.
//
// The array is cut into one chunk per rank.  In the first round every chunk goes round the ring and collects the inputs
// of all ranks; in the second it goes round once more and delivers the sum.
//
// Fill in the place marked YOUR CODE at the end; README.md has a picture.
#include "flags.cuh"

const unsigned SLOTS = 2;    // pieces that a rank's FIFO can hold
const unsigned PIECE = 256;  // elements of a piece, at most: a longer chunk takes several laps

// A block and its two neighbours.  Indices of chunks wrap round the ring: -1 is the last chunk.
struct Ring {
  const World& world;
  const u64 fifo, count, chunk;  // where the FIFOs begin; elements in the array, and in a chunk
  const int rank, ranks;
  Channel &mine, &next, &previous;  // flags and counters of this block, and of its neighbours
  T *const inbox, *const outbox;    // its slots in this rank's FIFO, and in the next rank's
  const T* const input;
  T* const result;
  unsigned sent, taken;  // pieces since the first call
  u64 lap = 0;           // offset of the present piece in each chunk

  __device__ Ring(const World& world, u64 fifo, u64 count, u64 chunk)
      : world(world), fifo(fifo), count(count), chunk(chunk), rank(world.rank()), ranks(world.ranks),
        mine(channel(0)), next(channel(1)), previous(channel(-1)), inbox(slots(0)), outbox(slots(1)),
        input((const T*)world.send[rank]), result((T*)world.receive[rank]),
        sent(mine.own.word[0]), taken(mine.own.word[1]) {}

  __device__ int around(int index) const { return (index % ranks + ranks) % ranks; }
  __device__ Channel& channel(int hops) const { return world.window_of(around(rank + hops))->channel[world.block()]; }
  __device__ T* slots(int hops) const {
    return (T*)(world.fifo_of(around(rank + hops)) + fifo) + world.block() * SLOTS * PIECE;
  }
  __device__ Flag* error() const { return &world.window_of(rank)->error.word[0]; }

  // Begin and length of the present piece of a chunk; it is shorter at the end of the array.
  __device__ u64 begin(int index) const { return around(index) * chunk + lap; }
  __device__ u64 length(int index) const {
    const u64 most = chunk - lap < PIECE ? chunk - lap : PIECE, at = begin(index);
    return at >= count ? 0 : count - at < most ? count - at : most;
  }

  // ---- the four verbs: each moves one piece of the chunk with that index ----

  __device__ void own(int index) {  // puts this rank's own input into the result
    const u64 at = begin(index), n = length(index);
    for (u64 i = threadIdx.x; i < n; i += blockDim.x) result[at + i] = input[at + i];
  }
  __device__ void send(int index) {  // sends the chunk in the result to the next rank
    await(&mine.room.word[0], sent + 1 - SLOTS, world, error());
    const u64 at = begin(index), n = length(index);
    T* const slot = outbox + sent % SLOTS * PIECE;
    for (u64 i = threadIdx.x; i < n; i += blockDim.x) slot[i] = result[at + i];
    publish(&next.arrived.word[0], ++sent);
  }
  __device__ void add(int index) { take(index, true); }    // adds the previous rank's chunk to the result
  __device__ void keep(int index) { take(index, false); }  // replaces the chunk in the result by it
  __device__ void take(int index, bool adds) {
    await(&mine.arrived.word[0], taken + 1, world, error());
    const u64 at = begin(index), n = length(index);
    const T* const slot = inbox + taken % SLOTS * PIECE;
    for (u64 i = threadIdx.x; i < n; i += blockDim.x)
      result[at + i] = adds ? combine(result[at + i], slot[i]) : slot[i];
    publish(&previous.room.word[0], ++taken);
  }
};

extern "C" __global__ void __launch_bounds__(512, 1)
    ring_step(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) count, PARAMETER(u64) chunk) {
  Ring ring(world, fifo, count, chunk);
  const int rank = ring.rank, ranks = ring.ranks;
  for (ring.lap = world.block() * PIECE; ring.lap < chunk; ring.lap += world.blocks * PIECE) {
    // YOUR CODE: this rank's input, the first round, the second round: ring.own, ring.send, ring.add and ring.keep.
    (void)rank, (void)ranks;  // remove this line
  }
  __syncthreads();
  if (threadIdx.x == 0) ring.mine.own.word[0] = ring.sent, ring.mine.own.word[1] = ring.taken;  // for the next call
}
