// Inputs of the ranks and the expected results.  This is the judge's own arithmetic; kernels/check.cu uses it.
// It shares no line with the kernels that are judged, not the sum, not the division, not the 16-bit types.
#pragma once
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
  unsigned seed, ranks, bits, stride, grades;  // grades: 2^grades elements share a magnitude of their own; 0: all one
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

// How many bits the numbers of a rank have less in the group of an element: groups differ, and ranks in each.  One element
// of eight towers above the others of its group, the same on all ranks.
__device__ inline unsigned grade(const Recipe& how, unsigned rank, u64 index, unsigned element) {
  return (mix(unsigned(index >> how.grades) ^ rank_key(how.seed + 1, rank)) & 7) + (element & 7 ? 6 : 0);
}

// Contribution of one rank to one element of a reduction.  STRIDED: only one of how.stride ranks does.  GRADED: numbers
// of fewer bits in some groups (sums only).
enum Kind { PLAIN, STRIDED, GRADED };

template <Kind KIND>
__device__ inline Exact term(const Recipe& how, unsigned rank, unsigned element, unsigned noise, unsigned less) {
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
  if (KIND == STRIDED && (rank + element) % how.stride) return Exact(0);
  return Exact(signed_bits(noise, how.bits) >> (KIND == GRADED ? less : 0));
}

// Whether there are graded recipes at all: what is not exact is a sum of floats (kernels/bound.cuh).
const bool GRADES = REDOP == SUM && Traits<T>::FLOAT && sizeof(T) == 4;

// An outlined function is compiled once for all users; inlined, a CPU's compiler would take four times as long.
//
// Elements that a thread works on at once: one on a GPU, enough to fill vector registers on a CPU; a stretch of a probe
// is no longer than SHORT.
#if defined(__CUDACC__)
const unsigned LONG = 1, SHORT = 1;
#else
const unsigned LONG = 512, SHORT = 128 / sizeof(T);
#endif

template <unsigned SIZE> struct Tile {
  u64 first;
  unsigned element[SIZE];
  T value[SIZE];

  __device__ Tile(const Recipe& how, u64 first) : first(first) {
    const unsigned low = unsigned(first), high = mix(unsigned(first >> 32) + how.seed);
    for (unsigned i = 0; i < SIZE; i++) element[i] = mix((low + i) ^ high);
    if (low + SIZE < low)  // the upper half of the index changes within the tile
      for (unsigned i = 0; i < SIZE; i++) element[i] = element_hash(how.seed, first + i);
  }

  // How many of its elements `left` fill: a constant where a tile is one, or a GPU would keep tiles in local memory.
  __device__ static unsigned filled(u64 left) { return SIZE == 1 || left >= SIZE ? SIZE : unsigned(left); }

  template <Kind KIND> __device__ unsigned less(const Recipe& how, unsigned rank, unsigned i) const {
    return KIND == GRADED ? grade(how, rank, first + i, element[i]) : 0;
  }

  template <Kind KIND> OUTLINED __device__ void add_input(const Recipe& how, unsigned rank, Exact* sum) const {
    const unsigned key = rank_key(how.seed, rank);
    for (unsigned i = 0; i < SIZE; i++) {
      const Exact part = term<KIND>(how, rank, element[i], mix(element[i] ^ key), less<KIND>(how, rank, i));
      sum[i] = rank ? both(sum[i], part) : part;
    }
  }

  template <Kind KIND> OUTLINED __device__ void set_input(const Recipe& how, unsigned rank) {
    const unsigned key = rank_key(how.seed, rank);
    for (unsigned i = 0; i < SIZE; i++) {
      const unsigned noise = mix(element[i] ^ key);
      value[i] = REDOP == NONE ? from_bits(Bits(wide(noise)))
                               : stored(term<KIND>(how, rank, element[i], noise, less<KIND>(how, rank, i)), T());
    }
  }

  __device__ void input(const Recipe& how, unsigned rank) {
    if (GRADES && how.grades) set_input<GRADED>(how, rank);
    else how.stride == 1 ? set_input<PLAIN>(how, rank) : set_input<STRIDED>(how, rank);
  }

  __device__ void reduced(const Recipe& how) {
    Exact sum[SIZE];
    for (unsigned rank = 0; rank < how.ranks; rank++)
      how.stride == 1 ? add_input<PLAIN>(how, rank, sum) : add_input<STRIDED>(how, rank, sum);
    for (unsigned i = 0; i < SIZE; i++) value[i] = stored(REDOP == AVG ? quotient(sum[i], how.ranks) : sum[i], T());
  }

  __device__ void wanted(const Recipe& how, int source) { source < 0 ? reduced(how) : input(how, unsigned(source)); }
};
