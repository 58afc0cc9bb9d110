// All-reduce in which the switch adds: NVLink SHARP.
//
// A multicast address names the same place in every rank's memory.  A multimem.ld_reduce from it has the NVSwitch load
// from all ranks and hand back the sum; a multimem.st to it has the switch write to all.
//
// nvls              Each rank loads one shard reduced, and stores it to all: two_shot of kernels/direct.cu with one load
//                   instead of `ranks` and one store instead of `ranks`, so a link carries 1 + 1 / ranks times the bytes.
//                   In place too: only rank r reads shard r, and only rank r writes it.
//
// Buffers.  Inputs and results themselves.  Each kind lies at one offset of memory that is bound to one multicast object,
// `inputs` and `results` are its multicast addresses; World has the ranks' own, unicast ones.  One instruction moves
// sizeof(Unit) bytes, aligned to that.  Elements before the first and after the last whole unit, or all where inputs and
// results are not aligned alike, are added by the shard's owner with plain loads and stores.
//
// Waits: every rank for every other before the first access to a peer's buffer and after the last, by unicast
// flags.  Multicast and unicast addresses of one place are aliases, between which only a proxy fence keeps the order: one
// before the first meeting, since inputs were written by unicast, and one before the last, since results are read so.  A
// proxy fence is two full fences, of the GPU and of the system, so one thread of a block makes it, and the barrier at the
// start of a meeting hands its order on to all threads that speak for the block: that is as good (docs/kernels.md).
// NCCL has none.
//
// Order of addition: the switch's own, in fp32 for 16-bit types; one rank has it done and all get its result, so results
// are the same bits everywhere.  An average rounds the sum first, then the quotient.
//
// Launch: as kernels/ring.cu, on sm_90 or newer, a GPU for each rank; types and reductions as in the table below.
// Launched by collbench/algorithms/nvls.py.
//
// Source: PTX ISA, "multimem.ld_reduce, multimem.st, multimem.red"; NCCL's NVLS algorithm.
#include "flags.cuh"

// Loads of one thread before its first store.
const unsigned IN_FLIGHT = 4;

// Elements in one instruction: 16 bytes of a type that has vector instructions, else one.
template <class E> constexpr unsigned LANES_OF = sizeof(E) == 2 ? 8 : 1;
template <> constexpr unsigned LANES_OF<float> = 4;
const unsigned LANES = LANES_OF<T>;

struct alignas(LANES * sizeof(T)) Unit {
  T lane[LANES];
};

// Elements by plain loads and stores, in the order of the ranks.
__device__ inline T add_one(const World& world, u64 at) {
  auto sum = widen(((const T*)world.send[0])[at]);
  for (unsigned rank = 1; rank < world.ranks; rank++)
    sum = combine_wide<REDOP>(sum, widen(((const T*)world.send[rank])[at]));
  return narrow(REDOP == AVG ? divide(sum, world.ranks) : sum, T());
}
__device__ inline void store_one(const World& world, u64 at, T x) {
  for (unsigned rank = 0; rank < world.ranks; rank++) ((T*)world.receive[rank])[at] = x;
}

#if defined(__CUDACC__)
// The meetings order these accesses, so by the letter weak ones would do too.  relaxed.sys says what is meant, memory of
// other GPUs, and is the form that docs/kernels.md proves.
#define LOAD "multimem.ld_reduce.relaxed.sys.global."
#define STORE "multimem.st.relaxed.sys.global."

union Registers {
  Unit unit;
  unsigned word[4];
  u64 pair;
};
#define LOAD_FOUR(form, x, from)                                                                         \
  asm volatile(LOAD form " {%0, %1, %2, %3}, [%4];"                                                      \
               : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3]) : "l"(from) : "memory")
#define STORE_FOUR(form, x, to)                                                                          \
  asm volatile(STORE form " [%0], {%1, %2, %3, %4};"                                                     \
               ::"l"(to), "r"(x.word[0]), "r"(x.word[1]), "r"(x.word[2]), "r"(x.word[3]) : "memory")
#define LOAD_WORD(form, x, from) asm volatile(LOAD form " %0, [%1];" : "=r"(x.word[0]) : "l"(from) : "memory")
#define STORE_WORD(form, x, to) asm volatile(STORE form " [%0], %1;" ::"l"(to), "r"(x.word[0]) : "memory")
#define LOAD_PAIR(form, x, from) asm volatile(LOAD form " %0, [%1];" : "=l"(x.pair) : "l"(from) : "memory")
#define STORE_PAIR(form, x, to) asm volatile(STORE form " [%0], %1;" ::"l"(to), "l"(x.pair) : "memory")

// Operations of the switch by type; "" if it has none.
template <class E> struct Switch;
#define ON_SWITCH(E, REGISTERS, sum, max, min, type)                                                     \
  template <> struct Switch<E> {                                                                         \
    template <int OP> __device__ static void load(Registers& x, const void* from) {                     \
      static_assert(OP != PROD && (OP != MAX || sizeof(max) > 1) && (OP != MIN || sizeof(min) > 1),      \
                    "the switch has no such instruction");                                               \
      if constexpr (OP == MAX) LOAD_##REGISTERS(max, x, from);                                           \
      else if constexpr (OP == MIN) LOAD_##REGISTERS(min, x, from);                                      \
      else LOAD_##REGISTERS(sum, x, from);                                                               \
    }                                                                                                    \
    __device__ static void store(const Registers& x, void* to) { STORE_##REGISTERS(type, x, to); }       \
  }
ON_SWITCH(float, FOUR, "add.v4.f32", "", "", "v4.f32");
ON_SWITCH(half_t, FOUR, "add.acc::f32.v4.f16x2", "max.v4.f16x2", "min.v4.f16x2", "v4.f16x2");
ON_SWITCH(bfloat_t, FOUR, "add.acc::f32.v4.bf16x2", "max.v4.bf16x2", "min.v4.bf16x2", "v4.bf16x2");
ON_SWITCH(double, PAIR, "add.f64", "", "", "f64");
ON_SWITCH(int, WORD, "add.s32", "max.s32", "min.s32", "s32");
ON_SWITCH(unsigned, WORD, "add.u32", "max.u32", "min.u32", "u32");
ON_SWITCH(long long, PAIR, "add.u64", "max.s64", "min.s64", "s64");  // a sum that wraps is the same for both signs
ON_SWITCH(u64, PAIR, "add.u64", "max.u64", "min.u64", "u64");

__device__ inline Unit load_reduced(const World& world, const T* inputs, u64 at) {
  Registers x;
  Switch<T>::load<REDOP>(x, inputs + at);
  if (REDOP == AVG)
    for (unsigned i = 0; i < LANES; i++) x.unit.lane[i] = finish(x.unit.lane[i], world.ranks);
  return x.unit;
}
__device__ inline void store_to_all(const World&, T* results, u64 at, Unit unit) {
  Registers x;
  x.unit = unit;
  Switch<T>::store(x, results + at);
}
#else  // a host has no switch: the ranks' own addresses in turn, and where a switch would refuse the address, nothing
inline bool refused(const T* place) { return (u64)place % sizeof(Unit) != 0; }
inline Unit load_reduced(const World& world, const T* inputs, u64 at) {
  Unit x{};
  for (unsigned i = 0; i < LANES && !refused(inputs + at); i++) x.lane[i] = add_one(world, at + i);
  return x;
}
inline void store_to_all(const World& world, T* results, u64 at, Unit x) {
  for (unsigned i = 0; i < LANES && !refused(results + at); i++) store_one(world, at + i, x.lane[i]);
}
#endif

// The threads of a rank, and the elements from `first` on that they work on.
struct Shard {
  const World& world;
  u64 first, count;
  unsigned thread, threads;

  __device__ void by_switch(const T* inputs, T* results, u64 from, u64 units) const {
    auto place = [&](u64 i) { return from + i * LANES; };
    u64 i = thread;
    for (; i + (IN_FLIGHT - 1) * (u64)threads < units; i += IN_FLIGHT * (u64)threads) {
      Unit x[IN_FLIGHT];
      for (unsigned k = 0; k < IN_FLIGHT; k++) x[k] = load_reduced(world, inputs, place(i + k * (u64)threads));
      for (unsigned k = 0; k < IN_FLIGHT; k++) store_to_all(world, results, place(i + k * (u64)threads), x[k]);
    }
    for (; i < units; i += threads) store_to_all(world, results, place(i), load_reduced(world, inputs, place(i)));
  }

  __device__ void by_hand(u64 from, u64 elements) const {
    for (u64 i = thread; i < elements; i += threads) store_one(world, from + i, add_one(world, from + i));
  }

  __device__ void reduce(const T* inputs, T* results) const {
    const u64 start = (u64)(inputs + first), alike = (start - (u64)(results + first)) % sizeof(Unit) == 0;
    const u64 before = alike ? (sizeof(Unit) - start % sizeof(Unit)) % sizeof(Unit) / sizeof(T) : count;
    const u64 head = before < count ? before : count, units = (count - head) / LANES, tail = head + units * LANES;
    by_hand(first, head);
    by_switch(inputs, results, first + head, units);
    by_hand(first + tail, count - tail);
  }
};

// `chunk` elements in each rank's shard; the last may be shorter or empty.
extern "C" __global__ void __launch_bounds__(512, 1)
    nvls(PARAMETER(World) world, PARAMETER(u64) inputs, PARAMETER(u64) results, PARAMETER(u64) count,
         PARAMETER(u64) chunk) {
  const Call call(world);
  const u64 first = call.rank * chunk, rest = first < count ? count - first : 0;
  const Shard shard{world, first, rest < chunk ? rest : chunk, call.block * blockDim.x + threadIdx.x,
                    world.blocks * blockDim.x};
  if (threadIdx.x == 0) fence_aliases();
  call.meet(0);
  shard.reduce((const T*)inputs, (T*)results);
  stamp_block(world, Phase::ADDED);
  __syncthreads();  // all of the block's stores come before the fence
  if (threadIdx.x == 0) fence_aliases();
  call.meet(1);
  call.leave();
}
