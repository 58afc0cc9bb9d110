// An all-reduce of fp32 whose ranks exchange something narrower: a two-shot with a format of wires.cuh in between.
//
// Every rank writes its input for another's shard into that one's inbox, narrow.  The owner of a shard reads what came,
// adds it to its own input in fp32 and in the order of the ranks, and writes the sum into everyone's outbox, narrow too.
// All read the sums from there; the owner keeps what the others read, so results are the same bits everywhere.
//
// Pieces.  A message is carried out in rounds, in which every rank owns one piece of `most` groups or fewer: as much as
// fits an inbox.  While a round's sums are on their way the inputs of the next round are too.  In round r
//     add r, send r + 1, meet, take r
// after a first `send 0, meet`: one meeting a round and one more.
//
// Buffers.  In each window two inboxes and two outboxes for each rank, used by turns of the round's parity; a rank's own
// are not used.  Peers write into windows only, and only the own input is read and the own result written: in place too.
//   Inbox r is written after the meeting of round r - 2 (or the first), before which its owner has added round r - 2.
//   Outbox r is written after the meeting of round r - 1, which readers of outbox r - 2 reach after they have taken it.
// Across calls: after the last meeting of a call no inbox is read any more; outboxes still are, and are not written
// before the first meeting of the next call, which readers reach after they have taken theirs.  Inbox 0 of the next call
// may follow inbox 0 of this one: whoever writes it has met the owner since that was added.
//
// With -DFEEDBACK what a group loses when it is written is kept and added the next time: a rank keeps that of its inputs,
// and as an owner that of its sums, in private memory at `residual`, as long as two messages.
//
// What may be wrong with a result is proved in kernels/bound.cuh, which is its check.
//
// Launch: as kernels/ring.cu.  Launched by collbench/implementations/narrow.py.
#include "flags.cuh"
#include "wires.cuh"

typedef WIRE Wire;

struct alignas(16) Quad { float lane[4]; };
struct alignas(16) Codes { typename Wire::Code lane[16 / sizeof(Wire::Code)]; };
const unsigned QUADS = GROUP / 4, PACKS = Wire::CODES * sizeof(Wire::Code) / sizeof(Codes);

struct Coded {  // a group as it goes by the wire
  union {
    Wire::Code code[Wire::CODES];
    Codes pack[PACKS];
  };
  Wire::Side side;
};

// A piece as it lies in an inbox or an outbox: the codes of its groups, then what stands beside them.
struct Box {
  unsigned char* start;
  u64 most;

  __device__ Codes* codes() const { return (Codes*)start; }
  __device__ Wire::Code* code(u64 group) const { return (Wire::Code*)start + group * Wire::CODES; }
  __device__ Wire::Side* sides() const { return (Wire::Side*)(start + most * PACKS * sizeof(Codes)); }
  __device__ void put(u64 group, const Coded& one, bool far = false) const {  // `far`: past the caches (prelude.cuh)
    UNROLLED
    for (unsigned i = 0; i < PACKS; i++) {
      if (STREAMS && far) stream(&codes()[group * PACKS + i], one.pack[i]);
      else codes()[group * PACKS + i] = one.pack[i];
    }
    if (Wire::SIDED) sides()[group] = one.side;
  }
  __device__ void get(u64 group, Coded& one) const {
    UNROLLED
    for (unsigned i = 0; i < PACKS; i++) one.pack[i] = codes()[group * PACKS + i];
    if (Wire::SIDED) one.side = sides()[group];
  }
};

// A group of a buffer of `count` elements; what it has beyond its end is zero, and is not written.
__device__ inline void load(const float* from, u64 group, u64 count, float* x) {
  const float* const start = from + group * GROUP;
  const u64 left = count - group * GROUP;
  if (left >= GROUP && (u64)from % sizeof(Quad) == 0) {
    UNROLLED
    for (unsigned i = 0; i < QUADS; i++) {
      const Quad quad = ((const Quad*)start)[i];
      UNROLLED
      for (unsigned k = 0; k < 4; k++) x[4 * i + k] = quad.lane[k];
    }
    return;
  }
  UNROLLED
  for (unsigned i = 0; i < GROUP; i++) x[i] = i < left ? start[i] : 0;
}

__device__ inline void store(float* to, u64 group, u64 count, const float* x) {
  float* const start = to + group * GROUP;
  const u64 left = count - group * GROUP;
  if (left >= GROUP && (u64)to % sizeof(Quad) == 0) {
    UNROLLED
    for (unsigned i = 0; i < QUADS; i++) ((Quad*)start)[i] = Quad{x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]};
    return;
  }
  UNROLLED
  for (unsigned i = 0; i < GROUP; i++)
    if (i < left) start[i] = x[i];
}

// Write a group, narrow; `kept`: what earlier calls lost of this group, and what this one loses.
__device__ inline void encode(float* x, Coded& coded, float* kept, u64 group, u64 count) {
#if defined(FEEDBACK)
  float lost[GROUP], read[GROUP];
  load(kept, group, count, lost);
  UNROLLED
  for (unsigned i = 0; i < GROUP; i++) x[i] += lost[i];
  coded.side = Wire::encode(x, coded.code);
  Wire::decode(coded.code, coded.side, read);
  UNROLLED
  for (unsigned i = 0; i < GROUP; i++) lost[i] = x[i] - read[i];
  store(kept, group, count, lost);
#else
  coded.side = Wire::encode(x, coded.code);
#endif
}

// Whether a group goes from buffer to box and back as it is: a CPU's vectors are loaded from where they lie, a GPU's
// packs come first into registers.
#if defined(__CUDACC__) || defined(FEEDBACK)
constexpr bool DIRECT = false;
#else
constexpr bool DIRECT = true;
#endif

// What all rounds of a call have in common.
struct Exchange {
  const Call& call;
  const World& world;
  u64 fifo, room, most, count, residual;
  u64 groups, thread, threads;

  __device__ Exchange(const Call& call, u64 fifo, u64 room, u64 most, u64 count, u64 residual)
      : call(call),
        world(call.world),
        fifo(fifo),
        room(room),
        most(most),
        count(count),
        residual(residual),
        groups((count + GROUP - 1) / GROUP),
        thread(call.block * blockDim.x + threadIdx.x),
        threads(world.blocks * blockDim.x) {}

  __device__ unsigned rounds() const { return unsigned((groups + most * world.ranks - 1) / (most * world.ranks)); }

  __device__ Box box(unsigned at, unsigned kind, unsigned round, unsigned from) const {
    return Box{world.fifo_of(at) + fifo + ((2 * kind + (round & 1)) * world.ranks + from) * room, most};
  }
  __device__ Box inbox(unsigned at, unsigned round, unsigned from) const { return box(at, 0, round, from); }
  __device__ Box outbox(unsigned at, unsigned round, unsigned from) const { return box(at, 1, round, from); }

  // Visit this thread's groups of the piece that a rank owns in a round: the number in the piece, and in the message.
  template <class Visit> __device__ void piece(unsigned round, unsigned owner, Visit visit) const {
    const u64 first = most * world.ranks * round + owner * length(round);
    const u64 end = first + length(round) < groups ? first + length(round) : groups;
    for (u64 at = thread; first + at < end; at += threads) visit(at, first + at);
  }

  __device__ const float* input() const { return (const float*)world.send[call.rank]; }
  __device__ float* result() const { return (float*)world.receive[call.rank]; }
  __device__ float* kept(unsigned of) const { return (float*)(world.fifo_of(call.rank) + residual) + of * count; }

  __device__ unsigned behind(unsigned step) const {  // another rank: a remainder would take as long as a group
    const unsigned rank = call.rank + step;
    return rank < world.ranks ? rank : rank - world.ranks;
  }
  __device__ bool whole(u64 group) const { return (group + 1) * GROUP <= count; }

  __device__ u64 length(unsigned round) const {  // groups of a piece
    const u64 left = groups - most * world.ranks * round, fair = (left + world.ranks - 1) / world.ranks;
    return fair < most ? fair : most;
  }
  __device__ bool streamed(unsigned round) const { return STREAMS && length(round) * PACKS >= world.streamed; }

  static __device__ void write(const Box& box, u64 at, const float* x, bool far = false) {
    if (far) {
      Coded coded;
      coded.side = Wire::encode(x, coded.code);
      return box.put(at, coded, true);
    }
    const Wire::Side side = Wire::encode(x, box.code(at));
    if (Wire::SIDED) box.sides()[at] = side;
  }
  static __device__ void read(const Box& box, u64 at, float* x) {
    fetch_ahead(box.code(at), Wire::CODES);
    Wire::decode(box.code(at), Wire::SIDED ? box.sides()[at] : Wire::Side(), x);
  }

  void add_whole(unsigned round, u64 at, u64 group, bool far) const {
    const float* const own = input() + group * GROUP;
    fetch_ahead(own, GROUP);
    float sum[GROUP], x[GROUP];
    for (unsigned from = 0; from < world.ranks; from++) {
      if (from != call.rank) read(inbox(call.rank, round, from), at, x);
      const float* const term = from == call.rank ? own : x;
      for (unsigned i = 0; i < GROUP; i++) sum[i] = from ? sum[i] + term[i] : term[i];
    }
    const Box kept = outbox(call.rank, round, call.rank);
    write(kept, at, sum);
    read(kept, at, result() + group * GROUP);
    Coded coded;
    kept.get(at, coded);
    for (unsigned step = 1; step < world.ranks; step++)
      outbox(behind(step), round, call.rank).put(at, coded, far);
  }

  __device__ void send(unsigned round) const {
    for (unsigned step = 1; step < world.ranks; step++) {
      const unsigned peer = behind(step);
      const Box box = inbox(peer, round, call.rank);
      const bool far = streamed(round);
      piece(round, peer, [&](u64 at, u64 group) {
        fetch_ahead(input() + group * GROUP, GROUP);
        if (DIRECT && whole(group)) return write(box, at, input() + group * GROUP, far);
        float x[GROUP];
        Coded coded;
        load(input(), group, count, x);
        encode(x, coded, kept(0), group, count);
        box.put(at, coded);
      });
    }
    stamp(world, Phase::MOVED);
  }

  __device__ void add(unsigned round) const {
    const bool far = streamed(round);
    piece(round, call.rank, [&](u64 at, u64 group) {
#if !defined(__CUDACC__)
      if (DIRECT && whole(group)) return add_whole(round, at, group, far);
#endif
      float sum[GROUP], x[GROUP];
      Coded coded;
      for (unsigned from = 0; from < world.ranks; from++) {
        if (from == call.rank) load(input(), group, count, x);
        else inbox(call.rank, round, from).get(at, coded), Wire::decode(coded.code, coded.side, x);
        UNROLLED
        for (unsigned i = 0; i < GROUP; i++) sum[i] = from ? sum[i] + x[i] : x[i];
      }
      encode(sum, coded, kept(1), group, count);
      for (unsigned step = 1; step < world.ranks; step++)
        outbox(behind(step), round, call.rank).put(at, coded, far);
      Wire::decode(coded.code, coded.side, x);
      store(result(), group, count, x);
    });
    stamp(world, Phase::ADDED);
  }

  __device__ void take(unsigned round) const {
    for (unsigned step = 1; step < world.ranks; step++) {
      const unsigned owner = behind(step);
      const Box box = outbox(call.rank, round, owner);
      piece(round, owner, [&](u64 at, u64 group) {
        if (DIRECT && whole(group)) return read(box, at, result() + group * GROUP);
        float x[GROUP];
        Coded coded;
        box.get(at, coded);
        Wire::decode(coded.code, coded.side, x);
        store(result(), group, count, x);
      });
    }
    stamp(world, Phase::MOVED);
  }
};

// `fifo`: where the boxes start in the windows, in bytes behind the flags, and `residual` where the private memory does;
// `room`: bytes of a box, and `most` groups in it; `count` elements in the message.
extern "C" __global__ void __launch_bounds__(256, 1)
    narrow_allreduce(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) room, PARAMETER(u64) most,
                     PARAMETER(u64) count, PARAMETER(u64) residual) {
  const Call call(world);
  const Exchange exchange(call, fifo, room, most, count, residual);
  const unsigned rounds = exchange.rounds();
  exchange.send(0);
  call.meet(0);
  for (unsigned round = 0; round < rounds; round++) {
    exchange.add(round);
    if (round + 1 < rounds) exchange.send(round + 1);
    call.meet(round + 1);
    exchange.take(round);
  }
  call.leave(rounds / 4 + 1);
}
