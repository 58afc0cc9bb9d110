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
// may follow inbox 0 of this one: its writer has met the owner since the owner added it.
//
// With -DFEEDBACK what a group loses when it is written is kept and added the next time: a rank keeps that of its inputs,
// and as an owner that of its sums, in private memory at `residual`, as long as two messages.
//
// kernels/bound.cuh proves a bound on the error of a result, and checks it.
//
// Launch: as kernels/ring.cu.  Launched by collbench/algorithms/narrow.py.
#include "flags.cuh"
#include "wires.cuh"

typedef WIRE Wire;

// A team of threads has a group (wires.cuh), and each of them these of its elements, codes and packs of codes.
const unsigned QUADS = OWN / 4, CODE_BYTES = Wire::OWN_CODES * sizeof(Wire::Code);
const unsigned WIDTH = CODE_BYTES < 16 ? CODE_BYTES : 16, PACKS = CODE_BYTES / WIDTH;
constexpr bool SHARED = TEAM > 1 && Wire::OWN_CODES == Wire::CODES;  // all threads of a team have all codes

struct alignas(16) Quad { float lane[4]; };
union Part {  // what a thread has of a group
  float of[OWN];
  Quad quad[QUADS];
};
__device__ inline Part operator+(const Part& a, const Part& b) {
  Part sum;
  UNROLLED
  for (unsigned i = 0; i < OWN; i++) sum.of[i] = a.of[i] + b.of[i];
  return sum;
}
struct alignas(WIDTH) Codes { typename Wire::Code lane[WIDTH / sizeof(Wire::Code)]; };

// A warp takes MANY groups a team at once: first all is loaded, then the rest is done.  Its TEAMS have groups that lie
// side by side, so an access of it is to 512 bytes of fp32 without gaps, or to 128 or 256 of a box.
#if TEAM == 1
const unsigned TEAMS = 1, MANY = 1;
#else
const unsigned TEAMS = WARP / TEAM, MANY = 4;
#endif
static_assert(MANY <= TEAM, "what a team shares is written by one thread for each group");

struct Coded {  // a thread's part of a group as it goes by the wire
  union {
    Wire::Code code[Wire::OWN_CODES];
    Codes pack[PACKS];
  };
  Wire::Side side;
};

// A piece as it lies in an inbox or an outbox: the codes of its groups, then what stands beside them.
struct Box {
  unsigned char* start;
  u64 most;

  __device__ Wire::Code* code(u64 group) const { return (Wire::Code*)start + group * Wire::CODES; }
  __device__ Codes* packs(u64 group) const { return (Codes*)code(group) + (SHARED ? 0 : lane() * PACKS); }
  __device__ Wire::Side* sides() const { return (Wire::Side*)code(most); }

  static __device__ void put(Codes* to, const Coded& one, bool far) {  // `far`: past the caches (prelude.cuh)
    UNROLLED
    for (unsigned i = 0; i < PACKS; i++) {
      if (STREAMS && far) stream(&to[i], one.pack[i]);
      else to[i] = one.pack[i];
    }
  }
  // COUNT groups, TEAMS apart.
  template <unsigned COUNT> __device__ void put(u64 group, const Coded* coded, bool far = false) const {
    UNROLLED
    for (unsigned k = 0; k < COUNT && !SHARED; k++) put(packs(group + k * TEAMS), coded[k], far);
    if (TEAM == 1) return put_side(group, *coded);
    Coded mine = coded[0];  // what a team shares is written by its first threads, one for each group
    UNROLLED
    for (unsigned k = 1; k < COUNT; k++) mine = lane() == k ? coded[k] : mine;
    if (lane() >= COUNT) return;
    if (SHARED) put(packs(group + lane() * TEAMS), mine, far);
    put_side(group + lane() * TEAMS, mine);
  }
  __device__ void put_side(u64 group, const Coded& one) const {
    if (Wire::SIDED) sides()[group] = one.side;
  }
  template <unsigned COUNT> __device__ void get(u64 group, Coded* coded) const {
    UNROLLED
    for (unsigned k = 0; k < COUNT; k++) {
      UNROLLED
      for (unsigned i = 0; i < PACKS; i++) coded[k].pack[i] = packs(group + k * TEAMS)[i];
      if (Wire::SIDED) coded[k].side = sides()[group + k * TEAMS];
    }
  }
};

// Elements of a buffer; what it has beyond its end is zero, and is not written.
struct Elements {
  float* start;
  u64 count;

  __device__ Quad* quads(u64 group) const {  // counted in quads, or NVIDIA's compiler would store single floats
    return (Quad*)start + group * (GROUP / 4) + lane() * QUADS;
  }
  __device__ float* own(u64 group) const { return start + group * GROUP + lane() * OWN; }
  __device__ u64 left(u64 group) const {
    const u64 first = group * GROUP + lane() * OWN;
    return first < count ? count - first : 0;
  }
  // COUNT groups, TEAMS apart: several only if they are whole.
  template <unsigned COUNT> __device__ void load(u64 group, Part* x) const {
    const u64 there = COUNT > 1 ? OWN : left(group);
    const bool by_quads = there >= OWN && (u64)start % sizeof(Quad) == 0;
    UNROLLED
    for (unsigned k = 0; k < COUNT && by_quads; k++) {
      UNROLLED
      for (unsigned i = 0; i < QUADS; i++) x[k].quad[i] = quads(group + k * TEAMS)[i];
    }
    UNROLLED
    for (unsigned k = 0; k < COUNT && !by_quads; k++) {
      UNROLLED
      for (unsigned i = 0; i < OWN; i++) x[k].of[i] = i < there ? own(group + k * TEAMS)[i] : 0;
    }
  }
  template <unsigned COUNT> __device__ void store(u64 group, const Part* x) const {
    const u64 there = COUNT > 1 ? OWN : left(group);
    const bool by_quads = there >= OWN && (u64)start % sizeof(Quad) == 0;
    UNROLLED
    for (unsigned k = 0; k < COUNT && by_quads; k++) {
      UNROLLED
      for (unsigned i = 0; i < QUADS; i++) quads(group + k * TEAMS)[i] = x[k].quad[i];
    }
    UNROLLED
    for (unsigned k = 0; k < COUNT && !by_quads; k++) {
      UNROLLED
      for (unsigned i = 0; i < OWN; i++)
        if (i < there) own(group + k * TEAMS)[i] = x[k].of[i];
    }
  }
};

// Write groups, narrow; `kept`: what earlier calls lost of them, and what this one loses.
template <unsigned COUNT>
__device__ inline void encode(Part* x, Coded* coded, const Elements& kept, u64 group) {
#if defined(FEEDBACK)
  Part lost[COUNT];
  kept.load<COUNT>(group, lost);
  UNROLLED
  for (unsigned k = 0; k < COUNT; k++) {
    float read[OWN];
    UNROLLED
    for (unsigned i = 0; i < OWN; i++) x[k].of[i] += lost[k].of[i];
    coded[k].side = Wire::encode(x[k].of, coded[k].code);
    Wire::decode(coded[k].code, coded[k].side, read);
    UNROLLED
    for (unsigned i = 0; i < OWN; i++) lost[k].of[i] = x[k].of[i] - read[i];
  }
  kept.store<COUNT>(group, lost);
#else
  UNROLLED
  for (unsigned k = 0; k < COUNT; k++) coded[k].side = Wire::encode(x[k].of, coded[k].code);
#endif
}

template <unsigned COUNT>
__device__ inline void decode(const Coded* coded, Part* x) {
  UNROLLED
  for (unsigned k = 0; k < COUNT; k++) Wire::decode(coded[k].code, coded[k].side, x[k].of);
}

// Whether a whole group goes from buffer to box and back as it is: a CPU's vectors are loaded from where they lie.
#if TEAM > 1 || defined(FEEDBACK)
constexpr bool DIRECT = false;
#else
constexpr bool DIRECT = true;
#endif

// How a team visits a piece: whole groups, several at a time, and what is left of it.  Apart, so that a CPU's loop has no
// branch that would cost it its registers.
struct Tile {
  static constexpr unsigned count = MANY;
  static constexpr bool direct = DIRECT;
};
struct Rest {
  static constexpr unsigned count = 1;
  static constexpr bool direct = false;
};

// State that all rounds of a call share.
struct Exchange {
  const Call& call;
  const World& world;
  u64 fifo, room, most, count, residual;
  u64 groups, team, teams;  // this thread's, of all that this rank has

  __device__ Exchange(const Call& call, u64 fifo, u64 room, u64 most, u64 count, u64 residual)
      : call(call),
        world(call.world),
        fifo(fifo),
        room(room),
        most(most),
        count(count),
        residual(residual),
        groups((count + GROUP - 1) / GROUP),
        team(call.block * own_teams() + threadIdx.x / TEAM),
        teams(world.blocks * own_teams()) {}

  static __device__ unsigned own_teams() { return blockDim.x / (TEAM * TEAMS) * TEAMS; }  // of a block: in whole warps

  __device__ unsigned rounds() const { return unsigned((groups + most * world.ranks - 1) / (most * world.ranks)); }

  __device__ Box box(unsigned at, unsigned kind, unsigned round, unsigned from) const {
    return Box{world.fifo_of(at) + fifo + ((2 * kind + (round & 1)) * world.ranks + from) * room, most};
  }
  __device__ Box inbox(unsigned at, unsigned round, unsigned from) const { return box(at, 0, round, from); }
  __device__ Box outbox(unsigned at, unsigned round, unsigned from) const { return box(at, 1, round, from); }

  // Visit this team's groups of the piece that a rank owns in a round: how, and the first one's number in the piece and
  // in the message; if they are several they are TEAMS apart.  Of every rank the same block has the same groups, since
  // blocks wait for their like: nothing that ranks may differ in decides, such as how buffers are aligned.
  template <class Visit> __device__ INLINED void piece(unsigned round, unsigned owner, Visit visit) const {
    if (threadIdx.x / TEAM >= own_teams()) return;
    const u64 first = most * world.ranks * round + owner * length(round), own = team, step = teams;
    const u64 end = first + length(round) < groups ? first + length(round) : groups;
    const u64 whole = end * GROUP <= count ? end : end - 1;
    const u64 tiles = first < whole ? (whole - first) / (MANY * TEAMS) : 0;
    for (u64 tile = own / TEAMS; tile < tiles; tile += step / TEAMS) {
      const u64 at = tile * (MANY * TEAMS) + own % TEAMS;
      visit(Tile(), at, first + at);
    }
    for (u64 at = tiles * (MANY * TEAMS) + own; first + at < end; at += step) visit(Rest(), at, first + at);
  }

  __device__ Elements input() const { return Elements{(float*)world.send[call.rank], count}; }
  __device__ Elements result() const { return Elements{(float*)world.receive[call.rank], count}; }
  __device__ Elements kept(unsigned of) const {
    return Elements{(float*)(world.fifo_of(call.rank) + residual) + of * count, count};
  }

  __device__ unsigned behind(unsigned step) const {  // another rank: a remainder would take as long as a group
    const unsigned rank = call.rank + step;
    return rank < world.ranks ? rank : rank - world.ranks;
  }

  __device__ u64 length(unsigned round) const {  // groups of a piece
    const u64 left = groups - most * world.ranks * round, fair = (left + world.ranks - 1) / world.ranks;
    return fair < most ? fair : most;
  }
  __device__ bool streamed(unsigned round) const {
    return STREAMS && length(round) * Wire::CODES * sizeof(Wire::Code) / sizeof(Pack) >= world.streamed;
  }

  static __device__ void write(const Box& box, u64 at, const float* x, bool far = false) {
    if (far) {
      Coded coded;
      coded.side = Wire::encode(x, coded.code);
      return box.put<1>(at, &coded, true);
    }
    const Wire::Side side = Wire::encode(x, box.code(at));
    if (Wire::SIDED) box.sides()[at] = side;
  }
  static __device__ void read(const Box& box, u64 at, float* x) {
    fetch_ahead(box.code(at), Wire::CODES);
    Wire::decode(box.code(at), Wire::SIDED ? box.sides()[at] : Wire::Side(), x);
  }

  __device__ INLINED void add_whole(unsigned round, u64 at, u64 group, bool far) const {
    const float* const own = input().own(group);
    fetch_ahead(own, GROUP);
    alignas(64) float sum[GROUP], x[GROUP];  // no vector of them lies across two lines of the cache
    for (unsigned from = 0; from < world.ranks; from++) {
      if (from != call.rank) read(inbox(call.rank, round, from), at, x);
      const float* const term = from == call.rank ? own : x;
      for (unsigned i = 0; i < GROUP; i++) sum[i] = from ? sum[i] + term[i] : term[i];
    }
    const Box kept = outbox(call.rank, round, call.rank);
    write(kept, at, sum);
    read(kept, at, result().own(group));
    Coded coded;
    kept.get<1>(at, &coded);
    for (unsigned step = 1; step < world.ranks; step++)
      outbox(behind(step), round, call.rank).put<1>(at, &coded, far);
  }

  // COUNT groups, of which the first is `group` in the message and `at` in its piece.  On a CPU they are few, and what is
  // compiled for them must not change what is compiled for the many.
  template <unsigned COUNT>
  __device__ OUTLINED void send(const Elements& input, const Elements& kept, const Box& box, u64 at, u64 group) const {
    Part x[COUNT];
    Coded coded[COUNT];
    input.load<COUNT>(group, x);
    encode<COUNT>(x, coded, kept, group);
    box.put<COUNT>(at, coded);
  }
  template <unsigned COUNT> __device__ OUTLINED void add(unsigned round, u64 at, u64 group, bool far) const {
    Part sum[COUNT], x[COUNT];
    Coded coded[COUNT];
    for (unsigned from = 0; from < world.ranks; from++) {
      if (from == call.rank) input().load<COUNT>(group, x);
      else inbox(call.rank, round, from).get<COUNT>(at, coded), decode<COUNT>(coded, x);
      UNROLLED
      for (unsigned k = 0; k < COUNT; k++) sum[k] = from ? sum[k] + x[k] : x[k];
    }
    encode<COUNT>(sum, coded, kept(1), group);
    for (unsigned step = 1; step < world.ranks; step++)
      outbox(behind(step), round, call.rank).put<COUNT>(at, coded, far);
    decode<COUNT>(coded, x);
    result().store<COUNT>(group, x);
  }
  template <unsigned COUNT>
  __device__ OUTLINED void take(const Elements& result, const Box& box, u64 at, u64 group) const {
    Part x[COUNT];
    Coded coded[COUNT];
    box.get<COUNT>(at, coded);
    decode<COUNT>(coded, x);
    result.store<COUNT>(group, x);
  }

  __device__ OUTLINED void send(unsigned round) const {
    const Elements input = this->input(), kept = this->kept(0);
    const bool far = streamed(round);
    for (unsigned step = 1; step < world.ranks; step++) {
      const unsigned peer = behind(step);
      const Box box = inbox(peer, round, call.rank);
      piece(round, peer, [&](auto how, u64 at, u64 group) INLINED {
        fetch_ahead(input.own(group), GROUP);
        if constexpr (how.direct) write(box, at, input.own(group), far);
        else send<how.count>(input, kept, box, at, group);
      });
    }
    stamp(world, Phase::MOVED);
  }

  __device__ OUTLINED void add(unsigned round) const {
    const bool far = streamed(round);
    piece(round, call.rank, [this, round, far](auto how, u64 at, u64 group) INLINED {
      if constexpr (how.direct) add_whole(round, at, group, far);
      else add<how.count>(round, at, group, far);
    });
    stamp(world, Phase::ADDED);
  }

  __device__ OUTLINED void take(unsigned round) const {
    const Elements result = this->result();
    for (unsigned step = 1; step < world.ranks; step++) {
      const unsigned owner = behind(step);
      const Box box = outbox(call.rank, round, owner);
      piece(round, owner, [&](auto how, u64 at, u64 group) INLINED {
        if constexpr (how.direct) read(box, at, result.own(group));
        else take<how.count>(result, box, at, group);
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
