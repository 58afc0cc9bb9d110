// All-reduces in which every rank reads or writes every other rank's buffers directly.
//
// one_shot          Each rank reads all inputs and adds them: one hop, ranks - 1 times the bytes (vLLM, TensorRT-LLM).
//                   Not in place: a rank's result would overwrite what another still reads.
// two_shot          Each rank adds one shard of all inputs, and writes the result to all: two hops, the fewest bytes.
//                   In place too: only rank r reads shard r, and only rank r writes it.
// parameter_server  Rank 0 adds everything and writes it to all: what a ring is there to avoid.
//
// Buffers.  Inputs and results themselves, in their owner's memory; no FIFO.
// Waits: every rank for every other, before the first access to a peer's buffer (its input is there, and its
// result may be overwritten) and after the last (its input may change, and its result is whole).
//
// Every element is added in the order of the ranks, in fp32 for 16-bit types and rounded once, by exactly one rank in
// two_shot and in the same way by all in one_shot: results are the same bits everywhere.
//
// Launch: as kernels/ring.cu.  Launched by collbench/algorithms/direct.py.
#include "flags.cuh"

// Packs that a thread loads from each rank before it stores the first sum: on a GPU to have them in flight together, on
// a CPU to fill vectors.  With RANKS known the loop over ranks is unrolled too: on a GPU all of its 16 loads are in
// flight at once, of 2, 4 or 8 ranks; more would not find registers.  On a CPU the sums then stay in registers, where
// 128 packs go through the first cache and halt the loads while they are stored.
#if defined(RANKS) && defined(__CUDACC__)
constexpr unsigned DEPTH = RANKS < 8 ? 16 / RANKS : 2;
#elif defined(RANKS)
constexpr unsigned DEPTH = 8;
#elif defined(__CUDACC__)
constexpr unsigned DEPTH = 4;
#else
constexpr unsigned DEPTH = 128;
#endif

template <class E> struct Sum;  // holds the partial results of one T or one Pack
template <> struct Sum<T> {
  decltype(widen(T())) wide;
  __device__ void start(T x) { wide = widen(x); }
  __device__ void add(T x) { wide = combine_wide<REDOP>(wide, widen(x)); }
  __device__ T result(unsigned ranks) const { return narrow(REDOP == AVG ? divide(wide, ranks) : wide, T()); }
};
template <> struct Sum<Pack> {
  Sum<T> lane[Pack::LANES];
  __device__ void start(Pack x) {
    for (unsigned i = 0; i < Pack::LANES; i++) lane[i].start(x.lane[i]);
  }
  __device__ void add(Pack x) {
    for (unsigned i = 0; i < Pack::LANES; i++) lane[i].add(x.lane[i]);
  }
  __device__ Pack result(unsigned ranks) const {
    Pack x;
    for (unsigned i = 0; i < Pack::LANES; i++) x.lane[i] = lane[i].result(ranks);
    return x;
  }
};

// Which elements of a rank's part a thread works on, and to whom the sums go.
struct Route {
  const World& world;
  u64 first;                  // element of all buffers that the part starts at
  unsigned thread, threads;   // this thread among those that share the part
  unsigned target, targets;   // ranks that get the result: target, target + 1, ... modulo all

  template <class E> __device__ E* place(unsigned char* const* of, unsigned rank, u64 at) const {
    return (E*)((T*)of[rank] + first) + at;
  }
};

// A number known when the kernel is compiled: only then do a GPU's sums stay in registers.
template <unsigned VALUE> struct Fixed {
  __device__ constexpr operator unsigned() const { return VALUE; }
};

template <bool FAR_STORES, class E, class Length>
__device__ inline void add_tile(const Route& route, u64 at, Length length) {
  const World& world = route.world;
  Sum<E> sum[DEPTH];
  const E* const own = route.template place<E>(world.send, 0, at);
  INDEPENDENT
  for (unsigned k = 0; k < length; k++) sum[k].start(own[k * (u64)route.threads]);  // by value: one access of 16 bytes
  for (unsigned rank = 1; rank < world.ranks; rank++) {
    const E* const peer = route.template place<E>(world.send, rank, at);
    INDEPENDENT
    for (unsigned k = 0; k < length; k++) sum[k].add(peer[k * (u64)route.threads]);
  }
  for (unsigned i = 0; i < route.targets; i++) {
    const unsigned rank = (route.target + i) % world.ranks;
    E* const result = route.template place<E>(world.receive, rank, at);
    INDEPENDENT
    for (unsigned k = 0; k < length; k++) {
      if (FAR_STORES && i) stream(&result[k * (u64)route.threads], sum[k].result(world.ranks));
      else result[k * (u64)route.threads] = sum[k].result(world.ranks);
    }
  }
}

// Add `count` elements of all ranks' inputs.
template <bool FAR_STORES, class E>
__device__ inline void add_all(const Route& route, u64 count) {
  u64 at = route.thread;
  for (; at + (DEPTH - 1) * (u64)route.threads < count; at += (u64)DEPTH * route.threads) {
    for (unsigned rank = 0; rank < route.world.ranks; rank++)
      fetch_ahead(route.template place<E>(route.world.send, rank, at), DEPTH);
    add_tile<FAR_STORES, E>(route, at, Fixed<DEPTH>());
  }
#if defined(__CUDACC__)
  for (; at < count; at += route.threads) add_tile<FAR_STORES, E>(route, at, Fixed<1>());
#else
  if (at < count) add_tile<FAR_STORES, E>(route, at, unsigned((count - at + route.threads - 1) / route.threads));
#endif
}

// The same by packs where buffers allow it, and what is left by elements.
__device__ inline void add_part(const Route& route, u64 count) {
  bool whole = true;
  for (unsigned rank = 0; rank < route.world.ranks; rank++)
    whole = whole && aligned((T*)route.world.send[rank] + route.first, (T*)route.world.receive[rank] + route.first);
  const u64 packs = whole ? count / Pack::LANES : 0;
  if (STREAMS && packs >= route.world.streamed) add_all<STREAMS, Pack>(route, packs);
  else add_all<false, Pack>(route, packs);
  Route rest = route;
  rest.first += packs * Pack::LANES;
  add_all<false, T>(rest, count - packs * Pack::LANES);
}

__device__ inline Route route(const Call& call, u64 first, unsigned target, unsigned targets) {
  return Route{call.world, first, call.block * blockDim.x + threadIdx.x, call.world.blocks * blockDim.x, target, targets};
}

extern "C" __global__ void __launch_bounds__(512, 1) one_shot(PARAMETER(World) world, PARAMETER(u64) count) {
  const Call call(world);
  call.meet(0);
  add_part(route(call, 0, call.rank, 1), count);
  stamp_block(world, Phase::ADDED);
  call.meet(1);
  call.leave();
}

// `chunk` elements in each rank's shard; the last may be shorter or empty.
extern "C" __global__ void __launch_bounds__(512, 1)
    two_shot(PARAMETER(World) world, PARAMETER(u64) count, PARAMETER(u64) chunk) {
  const Call call(world);
  const u64 first = call.rank * chunk;
  call.meet(0);
  if (first < count) add_part(route(call, first, call.rank, world.ranks), count - first < chunk ? count - first : chunk);
  stamp_block(world, Phase::ADDED);
  call.meet(1);
  call.leave();
}

extern "C" __global__ void __launch_bounds__(512, 1) parameter_server(PARAMETER(World) world, PARAMETER(u64) count) {
  const Call call(world);
  call.meet(0);
  if (call.rank == 0) add_part(route(call, 0, 0, world.ranks), count);
  stamp_block(world, Phase::ADDED);
  call.meet(1);
  call.leave();
}
