// Inputs whose result is exactly known, and the comparison with it, on the device that holds the buffers.
// collbench/datatypes.py is the definition (recipe, inputs, expected); a test holds the two against each other.
// Any grid; any length and alignment.  Launched by the platforms.
//
// The judge: it shares no line with the kernels that it judges, not the sum, not the division, not the 16-bit types, and
// is taken from the package even where other kernels are tried (COLLBENCH_KERNELS).  A verdict counts the elements that
// were looked at, so one that was never written is no acquittal.
//
// `fill` and `compare` are for whole buffers.  Where calls follow each other without a pause there is no time for that:
// a Probe names a few stretches of every block, at other places in every call, and only these are refilled, spoilt and
// compared.
#if !defined(__CUDACC__)
#include "host/cuda.hpp"
#else
#define PARAMETER(type) const __grid_constant__ type
#define OUTLINED
#endif

typedef unsigned long long u64;

enum { NONE = -1, SUM = 0, PROD = 1, MAX = 2, MIN = 3, AVG = 4 };  // ncclRedOp_t

struct half_t { unsigned short bits; };
struct bfloat_t { unsigned short bits; };

#if !defined(ELEMENT)
#define ELEMENT float
#endif
#if !defined(REDOP)
#define REDOP SUM
#endif
typedef ELEMENT T;

struct Recipe {
  unsigned seed, ranks, bits, stride;
};

struct Verdict {
  u64 seen, wrong;  // elements that were looked at, and those that differ
  u64 first, got;   // the first of these: its call above CALL_BITS, its index below; on a CPU also its bits
};
const unsigned CALL_BITS = 48;

__device__ inline unsigned mix(unsigned x) {
  x ^= x >> 16, x *= 0x7feb352dU;
  x ^= x >> 15, x *= 0x846ca68bU;
  return x ^ x >> 16;
}

__device__ inline unsigned element_hash(unsigned seed, u64 index) {
  return mix(unsigned(index) ^ mix(unsigned(index >> 32) + seed));
}

__device__ inline unsigned rank_key(unsigned seed, unsigned rank) { return mix(rank * 0x9e3779b9U + seed); }

__device__ inline unsigned pick(unsigned element, unsigned ranks) { return unsigned((u64)element * ranks >> 32); }

__device__ inline unsigned unsigned_bits(unsigned noise, unsigned bits) { return bits ? noise >> (32 - bits) : 0; }

__device__ inline int signed_bits(unsigned noise, unsigned bits) {
  return bits ? int(noise >> (32 - bits)) - int(1U << (bits - 1)) : 0;
}

__device__ inline u64 wide(unsigned noise) {
  return sizeof(T) < 8 ? (u64)noise : (u64)noise << 32 | mix(noise + 1);
}

template <class E> struct Traits {
  static const bool FLOAT = E(0.5f) != E(0), SIGNED = E(-1) < E(0);
  typedef E Exact;  // holds every partial result exactly, or wraps as the type does
};
template <> struct Traits<half_t> { static const bool FLOAT = true, SIGNED = true; typedef float Exact; };
template <> struct Traits<bfloat_t> { static const bool FLOAT = true, SIGNED = true; typedef float Exact; };
typedef Traits<T>::Exact Exact;

template <unsigned SIZE> struct Word;
template <> struct Word<1> { typedef unsigned char type; };
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned type; };
template <> struct Word<8> { typedef u64 type; };
typedef Word<sizeof(T)>::type Bits;

union Stored {
  T value;
  Bits bits;
};

__device__ inline T from_bits(Bits bits) {
  Stored word;
  word.bits = bits;
  return word.value;
}

// Numbers as they are stored and back.  16-bit types by way of float, whose bits they are a part of: a half's after a
// change of the exponent's bias, which a product with a power of two makes exactly.
union FloatWord {
  float value;
  unsigned bits;
};
__device__ inline float float_of(unsigned bits) {
  FloatWord word;
  word.bits = bits;
  return word.value;
}
__device__ inline unsigned bits_of(float value) {
  FloatWord word;
  word.value = value;
  return word.bits;
}
__device__ inline unsigned nearest_even(unsigned bits, unsigned dropped) {
  return (bits + (1U << (dropped - 1)) - 1 + (bits >> dropped & 1)) >> dropped;
}
template <class E> __device__ inline E stored(E x, E) { return x; }
__device__ inline bfloat_t stored(float x, bfloat_t) { return bfloat_t{(unsigned short)nearest_even(bits_of(x), 16)}; }
__device__ inline half_t stored(float x, half_t) {
  const unsigned sign = bits_of(x) >> 16 & 0x8000, exponent = (127 - 112) << 23;
  const unsigned rounded = nearest_even(bits_of(float_of(bits_of(x) & 0x7fffffff) * float_of(exponent)), 13);
  return half_t{(unsigned short)(sign | (rounded > 0x7c00 ? 0x7c00 : rounded))};
}

// Two numbers combined, and an average's sum divided.  Sums and products of integers wrap, so they are made without sign.
template <class E> struct Modular { typedef E type; };
template <> struct Modular<signed char> { typedef unsigned type; };
template <> struct Modular<int> { typedef unsigned type; };
template <> struct Modular<long long> { typedef u64 type; };

__device__ inline Exact both(Exact a, Exact b) {
  typedef Modular<Exact>::type M;
  switch (REDOP) {
    case PROD: return Exact(M(a) * M(b));
    case MAX: return a > b ? a : b;
    case MIN: return a < b ? a : b;
    default: return Exact(M(a) + M(b));
  }
}
__device__ inline Exact quotient(Exact sum, unsigned ranks) {
  if (Traits<T>::FLOAT) return sum / Exact(ranks);
  return Traits<T>::SIGNED ? Exact((long long)sum / (long long)ranks) : Exact((u64)sum / ranks);
}

// What one rank contributes to one element of a reduction.  STRIDED: whether only one of how.stride ranks does.
template <bool STRIDED> __device__ inline Exact term(const Recipe& how, unsigned rank, unsigned element, unsigned noise) {
  if (REDOP == AVG) {
    const unsigned chosen = pick(element, how.ranks);
    const unsigned after = chosen + 1 == how.ranks ? 0 : chosen + 1;
    const unsigned share = (chosen == rank ? how.ranks - 1 : 0) + (after == rank ? 1 : 0);
    const unsigned bits = mix(element + 1);
    return Traits<T>::SIGNED ? Exact((long long)signed_bits(bits, how.bits) * share)
                             : Exact((u64)unsigned_bits(bits, how.bits) * share);
  }
  if (!Traits<T>::FLOAT) return Exact(wide(noise) | (REDOP == PROD ? 1 : 0));
  if (REDOP == PROD) {
    const unsigned chosen = pick(element, how.ranks);
    const unsigned distance = rank >= chosen ? rank - chosen : rank + how.ranks - chosen;
    const float factor = noise & 2 ? 2.0f : 0.5f;
    const Exact mantissa = Exact(1) + Exact(unsigned_bits(noise, how.bits));
    const Exact magnitude = distance == 0 ? mantissa : distance <= 4 ? Exact(factor) : Exact(1);
    return noise & 1 ? -magnitude : magnitude;
  }
  if (STRIDED && (rank + element) % how.stride) return Exact(0);
  return Exact(signed_bits(noise, how.bits));
}

// What is outlined is compiled once for all that use it, or a CPU's compiler would take four times as long.
//
// Elements that a thread works on at once: one on a GPU, enough to fill vector registers on a CPU; a stretch of a probe
// is no longer than SHORT.
#if defined(__CUDACC__)
const unsigned LONG = 1, SHORT = 1;
#else
const unsigned LONG = 512, SHORT = 128 / sizeof(T);
#endif

template <unsigned SIZE> struct Tile {
  unsigned element[SIZE];
  T value[SIZE];

  __device__ Tile(const Recipe& how, u64 first) {
    const unsigned low = unsigned(first), high = mix(unsigned(first >> 32) + how.seed);
    for (unsigned i = 0; i < SIZE; i++) element[i] = mix((low + i) ^ high);
    if (low + SIZE < low)  // the upper half of the index changes within the tile
      for (unsigned i = 0; i < SIZE; i++) element[i] = element_hash(how.seed, first + i);
  }

  // How many of its elements `left` fill: a constant where a tile is one, or a GPU would keep tiles in local memory.
  __device__ static unsigned filled(u64 left) { return SIZE == 1 || left >= SIZE ? SIZE : unsigned(left); }

  template <bool STRIDED> OUTLINED __device__ void add_input(const Recipe& how, unsigned rank, Exact* sum) const {
    const unsigned key = rank_key(how.seed, rank);
    for (unsigned i = 0; i < SIZE; i++) {
      const Exact part = term<STRIDED>(how, rank, element[i], mix(element[i] ^ key));
      sum[i] = rank ? both(sum[i], part) : part;
    }
  }

  template <bool STRIDED> OUTLINED __device__ void set_input(const Recipe& how, unsigned rank) {
    const unsigned key = rank_key(how.seed, rank);
    for (unsigned i = 0; i < SIZE; i++) {
      const unsigned noise = mix(element[i] ^ key);
      value[i] = REDOP == NONE ? from_bits(Bits(wide(noise))) : stored(term<STRIDED>(how, rank, element[i], noise), T());
    }
  }

  __device__ void input(const Recipe& how, unsigned rank) {
    how.stride == 1 ? set_input<false>(how, rank) : set_input<true>(how, rank);
  }

  __device__ void reduced(const Recipe& how) {
    Exact sum[SIZE];
    for (unsigned rank = 0; rank < how.ranks; rank++)
      how.stride == 1 ? add_input<false>(how, rank, sum) : add_input<true>(how, rank, sum);
    for (unsigned i = 0; i < SIZE; i++) value[i] = stored(REDOP == AVG ? quotient(sum[i], how.ranks) : sum[i], T());
  }

  __device__ void wanted(const Recipe& how, int source) { source < 0 ? reduced(how) : input(how, unsigned(source)); }
};

// A stored element as a number whose difference counts the representable values in between (floating point only).
__device__ inline Bits ordered(T x) {
  const Bits bits = Stored{x}.bits, sign = Bits(Bits(1) << (8 * sizeof(T) - 1));
  return bits & sign ? Bits(sign - (bits & Bits(~sign))) : Bits(bits + sign);
}

__device__ inline bool same(T got, T wanted, unsigned ulps) {
  const Bits a = ordered(got), b = ordered(wanted);
  return Bits(a < b ? b - a : a - b) <= ulps;
}

// What a thread has found so far.
struct Finding {
  u64 seen, wrong, first, got;

  __device__ Finding() : seen(0), wrong(0), first(~0ULL), got(0) {}

  // `at`: the call and the index of the first of them.
  template <unsigned SIZE>
  OUTLINED __device__ void look(const T* got, const Tile<SIZE>& tile, unsigned length, u64 at, unsigned ulps) {
    unsigned differ = 0;
    for (unsigned i = 0; i < length; i++) differ += !same(got[i], tile.value[i], ulps);
    for (unsigned i = 0; differ && i < length; i++)
      if (at + i < first && !same(got[i], tile.value[i], ulps)) first = at + i, this->got = Stored{got[i]}.bits;
    seen += length, wrong += differ;
  }

  __device__ void report(Verdict* verdict) const {
#if defined(__CUDACC__)
    if (!seen) return;
    atomicAdd(&verdict->seen, seen);
    if (!wrong) return;
    atomicAdd(&verdict->wrong, wrong);
    atomicMin(&verdict->first, first);
#else
    verdict->seen += seen, verdict->wrong += wrong;
    if (first < verdict->first) verdict->first = first, verdict->got = got;
#endif
  }
};

// Elements `offset` to `offset + count` of the send buffer of `rank`, written to `target`.
extern "C" __global__ void fill(PARAMETER(u64) target, PARAMETER(u64) count, PARAMETER(Recipe) how,
                                PARAMETER(unsigned) rank, PARAMETER(u64) offset) {
  const u64 stride = (u64)LONG * gridDim.x * blockDim.x;
  for (u64 first = (u64)LONG * (blockIdx.x * blockDim.x + threadIdx.x); first < count; first += stride) {
    Tile<LONG> tile(how, offset + first);
    tile.input(how, rank);
    const unsigned length = tile.filled(count - first);
    for (unsigned i = 0; i < length; i++) ((T*)target)[first + i] = tile.value[i];
  }
}

// `got` against elements `offset` to `offset + count` of the send buffer of rank `source`, or if that is -1 of the
// reduction over all ranks.  `verdict` is zeros and the largest number beforehand.
extern "C" __global__ void compare(PARAMETER(u64) got, PARAMETER(u64) count, PARAMETER(Recipe) how,
                                   PARAMETER(int) source, PARAMETER(u64) offset, PARAMETER(unsigned) ulps,
                                   PARAMETER(u64) verdict) {
  const u64 stride = (u64)LONG * gridDim.x * blockDim.x;
  Finding finding;
  for (u64 first = (u64)LONG * (blockIdx.x * blockDim.x + threadIdx.x); first < count; first += stride) {
    Tile<LONG> tile(how, offset + first);
    tile.wanted(how, source);
    finding.look((const T*)got + first, tile, tile.filled(count - first), first, ulps);
  }
  finding.report((Verdict*)verdict);
}

// Where a call of the stress check looks, alike in every block of a buffer: `runs` stretches of `length` elements in each
// part of `part` elements, among them its first and its last; or all of a part that they would fill.  The seed moves the
// others, so that calls look at different places.  Stretches are counted from the ends of the parts, where a peer that
// lags behind is at work.
struct Probe {
  u64 block, part;
  unsigned runs, length;

  __device__ u64 parts() const { return (block + part - 1) / part; }

  __device__ u64 stretches() const { return parts() * runs; }

  struct Stretch { u64 first; unsigned count; };

  __device__ Stretch stretch(u64 number, unsigned seed) const {
    const u64 start = number % parts() * part, size = block - start < part ? block - start : part;
    const unsigned run = runs - 1 - unsigned(number / parts());
    if (size <= (u64)runs * length) {
      const u64 first = (u64)run * length, left = first < size ? size - first : 0;
      return Stretch{start + first, left < length ? unsigned(left) : length};
    }
    if (run == runs - 1) return Stretch{start + size - length, length};
    const u64 cell = size / runs, room = run ? cell - length + 1 : 1;
    return Stretch{start + run * cell + ((u64)mix(seed + run) * room >> 32), length};
  }

  // For every element of the stretches by the grid's threads; on a CPU for every stretch.  `place`: behind those before.
  template <class Visit> __device__ void visit(unsigned seed, Visit visit) const {
#if defined(__CUDACC__)
    const u64 total = stretches() * length, threads = (u64)gridDim.x * blockDim.x;
    for (u64 place = (u64)blockIdx.x * blockDim.x + threadIdx.x; place < total; place += threads) {
      const Stretch found = stretch(place / length, seed);
      if (place % length < found.count) visit(found.first + place % length, 1U, place);
    }
#else
    const u64 total = stretches();
    for (u64 number = 0; number < total; number++) {
      const Stretch found = stretch(number, seed);
      if (found.count) visit(found.first, found.count, number * length);
    }
#endif
  }
};

// The stretches of one block, which starts at `target` and is elements `offset` and on of the send buffer of `rank`.
extern "C" __global__ void probe_fill(PARAMETER(u64) target, PARAMETER(Probe) probe, PARAMETER(Recipe) how,
                                      PARAMETER(unsigned) rank, PARAMETER(u64) offset) {
  probe.visit(how.seed, [&](u64 first, unsigned count, u64) {
    Tile<SHORT> tile(how, offset + first);
    tile.input(how, rank);
    for (unsigned i = 0; i < count; i++) ((T*)target)[first + i] = tile.value[i];
  });
}

const unsigned INPUT = 0xC3C3C3C3U, OUTPUT = 0xA5A5A5A5U;  // written over either: no input, and no tiny number

// A pattern that is nobody's input, written over the stretches of one block.
extern "C" __global__ void probe_spoil(PARAMETER(u64) target, PARAMETER(Probe) probe, PARAMETER(unsigned) seed,
                                       PARAMETER(unsigned) pattern) {
  const T spoilt = from_bits(Bits((u64)pattern << 32 | pattern));
  probe.visit(seed, [&](u64 first, unsigned count, u64) {
    for (unsigned i = 0; i < count; i++) ((T*)target)[first + i] = spoilt;
  });
}

// The stretches of one block against what must be there, as `compare` does for a whole one.
extern "C" __global__ void probe_compare(PARAMETER(u64) got, PARAMETER(Probe) probe, PARAMETER(Recipe) how,
                                         PARAMETER(int) source, PARAMETER(u64) offset, PARAMETER(unsigned) ulps,
                                         PARAMETER(u64) call, PARAMETER(u64) verdict) {
  Finding finding;
  probe.visit(how.seed, [&](u64 first, unsigned count, u64) {
    Tile<SHORT> tile(how, offset + first);
    tile.wanted(how, source);
    finding.look((const T*)got + first, tile, count, call << CALL_BITS | first, ulps);
  });
  finding.report((Verdict*)verdict);
}

#if defined(__CUDACC__)
__device__ inline u64 nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
__device__ inline void rest(u64) {}
#else
inline u64 nanoseconds() { return shared_clock(); }
inline void rest(u64 left) {  // a short wait keeps the core, a long one offers it to the other ranks
  const timespec nap{0, long(left < 100000000 ? left : 100000000) / 2};
  if (left > 100000) nanosleep(&nap, nullptr);
}
#endif

// Whoever comes behind it on the queue is late by so many nanoseconds.
extern "C" __global__ void stall(PARAMETER(u64) wait) {
  if (blockIdx.x || threadIdx.x) return;
  for (u64 start = nanoseconds(), passed = 0; passed < wait; passed = nanoseconds() - start) rest(wait - passed);
}

#if !defined(__CUDACC__)
#include "host/stress.hpp"
#endif
