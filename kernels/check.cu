// Inputs whose result is exactly known, and the comparison with it, on the device that holds the buffers.
// collbench/datatypes.py is the definition (recipe, inputs, expected); a test holds the two against each other.
// Any grid; any length and alignment.  Launched by the platforms.
#include "prelude.cuh"

struct Recipe {
  unsigned seed, ranks, bits, stride;
};

struct Verdict {
  u64 wrong, first;  // how many elements differ, and the lowest index of one
};

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

// What one rank contributes to one element of a reduction.
__device__ inline Exact term(const Recipe& how, unsigned rank, unsigned element, unsigned noise) {
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
  const bool contributes = how.stride == 1 || (rank + element) % how.stride == 0;
  return contributes ? Exact(signed_bits(noise, how.bits)) : Exact(0);
}

// Elements a thread works on at once: one on a GPU, enough to fill vector registers on a CPU.
#if defined(__CUDACC__)
const unsigned TILE = 1;
#else
const unsigned TILE = 512;
#endif

// How many of them `left` elements fill: a constant where a tile is one, or a GPU would keep tiles in local memory.
__device__ inline unsigned filled(u64 left) { return TILE == 1 || left >= TILE ? TILE : unsigned(left); }

struct Tile {
  unsigned element[TILE];
  T value[TILE];

  __device__ Tile(const Recipe& how, u64 first) {
    for (unsigned i = 0; i < TILE; i++) element[i] = element_hash(how.seed, first + i);
  }

  __device__ void input(const Recipe& how, unsigned rank) {
    const unsigned key = rank_key(how.seed, rank);
    for (unsigned i = 0; i < TILE; i++) {
      const unsigned noise = mix(element[i] ^ key);
      value[i] = REDOP == NONE ? from_bits(Bits(wide(noise)))
                               : narrow(term(how, rank, element[i], noise), T());
    }
  }

  __device__ void reduced(const Recipe& how) {
    Exact sum[TILE];
    for (unsigned rank = 0; rank < how.ranks; rank++) {
      const unsigned key = rank_key(how.seed, rank);
      for (unsigned i = 0; i < TILE; i++) {
        const Exact part = term(how, rank, element[i], mix(element[i] ^ key));
        sum[i] = rank ? combine_wide<REDOP>(sum[i], part) : part;
      }
    }
    for (unsigned i = 0; i < TILE; i++) value[i] = narrow(REDOP == AVG ? divide(sum[i], how.ranks) : sum[i], T());
  }
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

// Elements `offset` to `offset + count` of the send buffer of `rank`, written to `target`.
extern "C" __global__ void fill(PARAMETER(u64) target, PARAMETER(u64) count, PARAMETER(Recipe) how,
                                PARAMETER(unsigned) rank, PARAMETER(u64) offset) {
  const u64 stride = (u64)TILE * gridDim.x * blockDim.x;
  for (u64 first = (u64)TILE * (blockIdx.x * blockDim.x + threadIdx.x); first < count; first += stride) {
    Tile tile(how, offset + first);
    tile.input(how, rank);
    const unsigned length = filled(count - first);
    for (unsigned i = 0; i < length; i++) ((T*)target)[first + i] = tile.value[i];
  }
}

// `got` against elements `offset` to `offset + count` of the send buffer of rank `source`, or if that is -1 of the
// reduction over all ranks.  `verdict` is zero and the largest number beforehand.
extern "C" __global__ void compare(PARAMETER(u64) got, PARAMETER(u64) count, PARAMETER(Recipe) how,
                                   PARAMETER(int) source, PARAMETER(u64) offset, PARAMETER(unsigned) ulps,
                                   PARAMETER(u64) verdict) {
  const u64 stride = (u64)TILE * gridDim.x * blockDim.x;
  u64 wrong = 0, lowest = ~0ULL;
  for (u64 first = (u64)TILE * (blockIdx.x * blockDim.x + threadIdx.x); first < count; first += stride) {
    Tile tile(how, offset + first);
    source < 0 ? tile.reduced(how) : tile.input(how, unsigned(source));
    const unsigned length = filled(count - first);
    unsigned differ = 0;
    for (unsigned i = 0; i < length; i++) differ += !same(((const T*)got)[first + i], tile.value[i], ulps);
    for (unsigned i = 0; differ && i < length && lowest == ~0ULL; i++)
      if (!same(((const T*)got)[first + i], tile.value[i], ulps)) lowest = first + i;
    wrong += differ;
  }
  if (!wrong) return;
  atomicAdd(&((Verdict*)verdict)->wrong, wrong);
  atomicMin(&((Verdict*)verdict)->first, lowest);
}
