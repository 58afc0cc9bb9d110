// Collectives round a ring, each in one kernel (Patarasuk & Yuan, 2009; the primitives are those of NCCL's runRing).
//
// All-reduce: the array is cut into one chunk a rank.  Each chunk travels once round the ring collecting every rank's
// part, and once more handing the result to everyone: 2 (ranks - 1) hops, and every rank sends 2 (ranks - 1) / ranks of
// the array.  Reduce-scatter is the first round, all-gather the second; a broadcast is a chain of hops from the root.
//
// Buffers.  A rank writes into the FIFO of the next one, which holds SLOTS pieces per block; the user's buffers may be one
// and the same, and are private but for what MERGED says.  A slot has room for `slot` elements, the same in every call,
// since a call may begin while its neighbour still empties the last one's slots.  Pieces are at most `piece` elements,
// which each call may choose: small ones spread a small chunk over all blocks, large ones pay for fewer flags.  A chunk
// takes several laps.
//
// Waits, per block b; both numbers count pieces since the windows were zeroed, modulo 2^32:
//   arrived  in my window, written by the previous rank: pieces it has put into my FIFO.  I wait for it before reading.
//   room     in my window, written by the next rank: pieces it has taken out of its FIFO.  I wait for it before writing,
//            until a slot is free.  A hop takes one piece while it sends another, so SLOTS must be at least 2: with one
//            slot every rank would wait for the next one to take first.
// SLOTS is a power of two, so that slot numbers go on across the wrap.
//
// With MERGED, a hop has one fence and one wait: data and room are made known together, and both flags are looked at
// together.  And the second round of an all-reduce hands pieces of finished sums straight into the next rank's result,
// from where that rank hands them on: a passing hop reads and writes where it would read, store and write, and the last
// one only waits.  Of 6 - 4 / ranks times the array that a rank reads and writes, 5 - 4 / ranks are left.  A third number,
// `handed`, beside `arrived`, counts such pieces; no room is needed, since each place is written once in a call:
//   The next rank is in this call, and done with what was there: a finished sum has in it what that rank added or sent in
//   the first round, and every rank that it passed since waited for the one before.  In place, it has read its input of
//   this piece, for the same reason.
//   Nobody else reads or writes its result afterwards: it waits for all pieces before it leaves.
//
// A thread loads IN_FLIGHT packs, and as many of its own input, before it stores the first.  A store might change what
// the next load reads, for all that the compiler knows, so in a plain loop each load waits until the one before it has
// come back from memory.  On a CPU one is best: the plain loop is a vector loop.
//
// Launch: world.blocks blocks for each rank of this device, all co-resident (cooperative launch); any block size.
// Launched by collbench/algorithms/ring.py.
#include "flags.cuh"

#if !defined(SLOTS)
#define SLOTS 2
#endif
#if !defined(IN_FLIGHT)
#define IN_FLIGHT 1
#endif
static_assert(SLOTS >= 2 && (SLOTS & (SLOTS - 1)) == 0, "a ring needs a power of two of slots, at least two");
static_assert(SLOTS < LEAD, "a rank may be so many pieces ahead");

// FAR: send past this core's caches.  HAND: write into the next rank's result; HANDED: read what came so into mine.
enum Verb { TAKE = 1, ADD = 2, KEEP = 4, SEND = 8, FAR = 16, HAND = 32, HANDED = 64 };

// The second round of an all-reduce: a sum is completed, passed on, and at its end.
#if defined(MERGED)
enum Second { COMPLETE = TAKE | ADD | KEEP | HAND, PASS = HANDED | HAND, END = HANDED };
#else
enum Second { COMPLETE = TAKE | ADD | KEEP | SEND, PASS = TAKE | KEEP | SEND, END = TAKE | KEEP };
#endif

// TILE elements of a thread, from `at` on and as far apart as the block is wide: all loads, then all stores.
template <int VERBS, unsigned TILE, class E>
__device__ inline void move_tile(const E* taken, const E* source, E* target, E* sent, u64 at, unsigned ranks) {
  E x[TILE], own[TILE];
  auto place = [&](unsigned k) { return at + k * (u64)blockDim.x; };
  for (unsigned k = 0; k < TILE; k++) x[k] = VERBS & (TAKE | HANDED) ? taken[place(k)] : read_once(&source[place(k)]);
  for (unsigned k = 0; k < TILE && (VERBS & ADD); k++) own[k] = read_once(&source[place(k)]);
  for (unsigned k = 0; k < TILE; k++) {
    if (VERBS & ADD) x[k] = combine(x[k], own[k]);
    if ((VERBS & ADD) && (VERBS & KEEP)) x[k] = finish(x[k], ranks);
    if (VERBS & KEEP) write_once(&target[place(k)], x[k]);
    if (VERBS & FAR) stream(&sent[place(k)], x[k]);
    else if (VERBS & (SEND | HAND)) sent[place(k)] = x[k];
  }
}

template <int VERBS, unsigned TILE, class E>
__device__ inline void move(const E* taken, const E* source, E* target, E* sent, u64 count, unsigned ranks) {
  u64 i = threadIdx.x;
  if constexpr (TILE > 1)
    for (; i + (TILE - 1) * (u64)blockDim.x < count; i += TILE * (u64)blockDim.x)
      move_tile<VERBS, TILE>(taken, source, target, sent, i, ranks);
  INDEPENDENT
  for (; i < count; i += blockDim.x) move_tile<VERBS, 1>(taken, source, target, sent, i, ranks);
}

struct Ring {
  const World& world;
  Window *mine, *previous, *next;
  T *inbox, *outbox;  // this block's FIFO in my window, and in the next rank's
  u64 slot;
  unsigned block, sent, taken, handed;

  __device__ Ring(const World& world, unsigned rank, u64 fifo, u64 slot)
      : world(world),
        mine(world.window_of(rank)),
        previous(world.window_of((rank + world.ranks - 1) % world.ranks)),
        next(world.window_of((rank + 1) % world.ranks)),
        inbox((T*)(world.fifo_of(rank) + fifo) + world.block() * SLOTS * slot),
        outbox((T*)(world.fifo_of((rank + 1) % world.ranks) + fifo) + world.block() * SLOTS * slot),
        slot(slot),
        block(world.block()),
        sent(mine->channel[world.block()].own.word[0]),
        taken(mine->channel[world.block()].own.word[1]),
        handed(mine->channel[world.block()].own.word[4]) {
    begin_trace(world);
  }

  // One piece moves on by one rank: taken from the FIFO, added to, kept, sent, as the verbs say.  `theirs`: where it is
  // handed to.
  template <int VERBS>
  __device__ void hop(const T* source, T* target, u64 count, T* theirs = nullptr) {
    Channel& channel = mine->channel[block];
    wait_for<VERBS>(&channel.arrived.word[0], &channel.room.word[0], &mine->error.word[0]);
    if (VERBS == HANDED) return;  // it is where it belongs, and goes no further
    const T* const in = VERBS & HANDED ? target : inbox + taken % SLOTS * slot;
    T* const out = VERBS & HAND ? theirs : outbox + sent % SLOTS * slot;
    const bool whole = aligned(source, target) && (!(VERBS & HAND) || aligned(source, theirs));
    const u64 packs = whole ? count / Pack::LANES : 0;
    const u64 tail = packs * Pack::LANES;  // what does not fill a pack: the end of the array, or all of an odd buffer
    const Pack *from = (const Pack*)in, *own = (const Pack*)source;
    Pack *keep = (Pack*)target, *to = (Pack*)out;
    const bool far = STREAMS && (VERBS & (SEND | HAND)) && packs >= world.streamed;
    if (far) move<VERBS | FAR, IN_FLIGHT>(from, own, keep, to, packs, world.ranks);
    else move<VERBS, IN_FLIGHT>(from, own, keep, to, packs, world.ranks);
    move<VERBS, 1>(in + tail, source + tail, target + tail, out + tail, count - tail, world.ranks);
    stamp_block(world, VERBS & ADD ? Phase::ADDED : Phase::MOVED);
    told<VERBS>(&next->channel[block].arrived.word[0], &previous->channel[block].room.word[0]);
    stamp(world, Phase::PUBLISHED);
  }

  template <int VERBS>
  __device__ void wait_for(const Flag* arrived, const Flag* room, Flag* error) const {
    const unsigned free = sent + 1 - SLOTS;  // pieces that must have been taken before the next one has a slot
#if defined(MERGED)
    if (VERBS & HANDED) return await(arrived + 1, handed, world, error);  // as many as I have handed on
    if ((VERBS & SEND) && (VERBS & TAKE)) return await(arrived, taken + 1, room, free, world, error);
#endif
    if (VERBS & TAKE) await(arrived, taken + 1, world, error);
    if (VERBS & SEND) await(room, free, world, error);
  }

  template <int VERBS>
  __device__ void told(Flag* arrived, Flag* room) {
#if defined(MERGED)
    if ((VERBS & HAND) && (VERBS & TAKE)) return publish(arrived + 1, ++handed, room, ++taken);
    if (VERBS & HAND) return publish(arrived + 1, ++handed);
    if ((VERBS & SEND) && (VERBS & TAKE)) return publish(arrived, ++sent, room, ++taken);
#endif
    if (VERBS & SEND) publish(arrived, ++sent);
    if (VERBS & TAKE) publish(room, ++taken);
  }

  __device__ void remember() {
    end_trace(world);
    __syncthreads();
    if (threadIdx.x == 0) {
      mine->channel[block].own.word[0] = sent;
      mine->channel[block].own.word[1] = taken;
      mine->channel[block].own.word[4] = handed;
    }
  }
};

// How much of `wanted` elements from `first` on lies within `count`.
__device__ inline u64 within(u64 first, u64 wanted, u64 count) {
  return first >= count ? 0 : count - first < wanted ? count - first : wanted;
}

// A ring of one rank sends to nobody: its result is its input, and every block copies a part of it.
__device__ inline bool alone(const World& world, const T* source, T* target, u64 count) {
  if (world.ranks > 1) return false;
  const u64 packs = aligned(source, target) ? count / Pack::LANES : 0, tail = packs * Pack::LANES;
  const u64 share = (packs + world.blocks - 1) / world.blocks, first = world.block() * share;
  const Pack* const from = (const Pack*)source + first;
  Pack* const to = (Pack*)target + first;
  move<KEEP, IN_FLIGHT>(from, from, to, to, within(first, share, packs), 1);
  if (world.block() == 0) move<KEEP, 1>(source + tail, source + tail, target + tail, target + tail, count - tail, 1);
  return true;
}

// `count` elements in all, `chunk` in each rank's chunk (the last may be shorter or empty), `slot` in a FIFO slot, of
// which a piece fills `piece`; all but the count are whole packs.  `fifo`: where in the windows this kernel's FIFOs
// start, in bytes behind the flags.
extern "C" __global__ void __launch_bounds__(512, 1)
    ring_allreduce(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) slot, PARAMETER(u64) piece,
                   PARAMETER(u64) count, PARAMETER(u64) chunk) {
  const unsigned ranks = world.ranks, rank = world.rank();
  const T* const source = (const T*)world.send[rank];
  T* const target = (T*)world.receive[rank];
  if (alone(world, source, target, count)) return;
  Ring ring(world, rank, fifo, slot);
  for (u64 lap = world.block() * piece; lap < chunk; lap += world.blocks * piece) {
    auto part = [&](unsigned index) { return index % ranks * chunk + lap; };
    auto length = [&](unsigned index) { return within(part(index), chunk - lap < piece ? chunk - lap : piece, count); };
    auto from = [&](unsigned index) { return source + part(index); };
    auto to = [&](unsigned index) { return target + part(index); };
    auto theirs = [&](unsigned index) { return (T*)world.receive[(rank + 1) % ranks] + part(index); };
    // Everyone sends the part of the chunk that must travel furthest to reach its owner ...
    unsigned index = rank + ranks - 1;
    ring.hop<SEND>(from(index), to(index), length(index));
    // ... ranks - 2 hops add to what comes and pass it on ...
    for (unsigned step = 2; step < ranks; step++) {
      index = rank + ranks - step;
      ring.hop<TAKE | ADD | SEND>(from(index), to(index), length(index));
    }
    // ... the last part completes the sum of my own chunk: keep it, and start handing it round ...
    ring.hop<COMPLETE>(from(rank), to(rank), length(rank), theirs(rank));
    // ... ranks - 2 hops keep the others' sums and pass them on ...
    for (unsigned step = 1; step + 1 < ranks; step++) {
      index = rank + ranks - step;
      ring.hop<PASS>(to(index), to(index), length(index), theirs(index));
    }
    // ... and the one that comes last has been everywhere.
    ring.hop<END>(to(rank + 1), to(rank + 1), length(rank + 1));
  }
  ring.remember();
}

// The first round alone: `chunk` elements of the result stay with each rank, cut from ranks * chunk.
extern "C" __global__ void __launch_bounds__(512, 1)
    ring_reducescatter(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) slot, PARAMETER(u64) piece,
                       PARAMETER(u64) chunk) {
  const unsigned ranks = world.ranks, rank = world.rank();
  const T* const source = (const T*)world.send[rank];
  T* const target = (T*)world.receive[rank];
  if (alone(world, source, target, chunk)) return;
  Ring ring(world, rank, fifo, slot);
  for (u64 lap = world.block() * piece; lap < chunk; lap += world.blocks * piece) {
    const u64 length = within(lap, piece, chunk);
    auto from = [&](unsigned index) { return source + index % ranks * chunk + lap; };
    ring.hop<SEND>(from(rank + ranks - 1), target + lap, length);
    for (unsigned step = 2; step < ranks; step++)
      ring.hop<TAKE | ADD | SEND>(from(rank + ranks - step), target + lap, length);
    ring.hop<TAKE | ADD | KEEP>(from(rank), target + lap, length);
  }
  ring.remember();
}

// The second round alone: each rank's `chunk` elements go to everyone.
extern "C" __global__ void __launch_bounds__(512, 1)
    ring_allgather(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) slot, PARAMETER(u64) piece,
                       PARAMETER(u64) chunk) {
  const unsigned ranks = world.ranks, rank = world.rank();
  const T* const source = (const T*)world.send[rank];
  T* const target = (T*)world.receive[rank];
  if (alone(world, source, target, chunk)) return;
  Ring ring(world, rank, fifo, slot);
  for (u64 lap = world.block() * piece; lap < chunk; lap += world.blocks * piece) {
    const u64 length = within(lap, piece, chunk);
    auto to = [&](unsigned index) { return target + index % ranks * chunk + lap; };
    ring.hop<KEEP | SEND>(source + lap, to(rank), length);
    for (unsigned step = 1; step + 1 < ranks; step++)
      ring.hop<TAKE | KEEP | SEND>(source, to(rank + ranks - step), length);
    ring.hop<TAKE | KEEP>(source, to(rank + 1), length);
  }
  ring.remember();
}

// A chain from the root round to the rank before it; while one piece goes on, the next one follows.
extern "C" __global__ void __launch_bounds__(512, 1)
    ring_broadcast(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) slot, PARAMETER(u64) piece,
                   PARAMETER(u64) count, PARAMETER(unsigned) root) {
  const unsigned ranks = world.ranks, rank = world.rank();
  const T* const source = (const T*)world.send[rank];
  T* const target = (T*)world.receive[rank];
  if (alone(world, source, target, count)) return;
  Ring ring(world, rank, fifo, slot);
  for (u64 lap = world.block() * piece; lap < count; lap += world.blocks * piece) {
    const u64 length = within(lap, piece, count);
    if (rank == root) ring.hop<KEEP | SEND>(source + lap, target + lap, length);
    else if ((rank + 1) % ranks == root) ring.hop<TAKE | KEEP>(source, target + lap, length);
    else ring.hop<TAKE | KEEP | SEND>(source, target + lap, length);
  }
  ring.remember();
}
