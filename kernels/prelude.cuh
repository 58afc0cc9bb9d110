// Element types, how two elements combine, and the 16-byte pack that every kernel moves.
//
// Compile with -DELEMENT=<storage type> and -DREDOP=<code>: the names and codes stand in collbench/datatypes.py.
// 16-bit types are combined in fp32 and rounded once a step; integers wrap, so they are combined as unsigned.
#pragma once

#if !defined(__CUDACC__)
#include "host/cuda.hpp"
#else
#define PARAMETER(type) const __grid_constant__ type  // by plain value, indexing it would copy it to local memory
#define INDEPENDENT
#define BLOCK_LOCAL __shared__
#define OUTLINED
#define INLINED
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

template <class E> __device__ inline E widen(E x) { return x; }
template <class E> __device__ inline E narrow(E x, E) { return x; }

#if defined(__CUDACC__)
__device__ inline float half_to_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ inline unsigned short float_to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ inline float bits_to_float(unsigned bits) { return __uint_as_float(bits); }
__device__ inline unsigned float_to_bits(float value) { return __float_as_uint(value); }
#else
inline float bits_to_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned float_to_bits(float value) { return std::bit_cast<unsigned>(value); }
#endif

__device__ inline float widen(half_t x) { return half_to_float(x.bits); }
__device__ inline half_t narrow(float x, half_t) { return half_t{float_to_half(x)}; }
__device__ inline float widen(bfloat_t x) { return bits_to_float(unsigned(x.bits) << 16); }
// All digits of a GPU's NaN are set (0x7fffffff): rounded like a number it would become -0.  A CPU's ends in zeros, and
// asking would cost it a tenth of a sum.
#if defined(__CUDACC__) && !defined(FULL_NANS)
#define FULL_NANS true
#elif !defined(FULL_NANS)
#define FULL_NANS false
#endif
__device__ inline bfloat_t narrow(float x, bfloat_t) {  // to nearest even
  const unsigned bits = float_to_bits(x);
  if (FULL_NANS && (bits & 0x7fffffff) > 0x7f800000) return bfloat_t{0x7fff};
  return bfloat_t{(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// The type to add and multiply in: overflow of a signed integer is undefined, of an unsigned one it wraps.
template <class E> struct Wrapping { typedef E type; };
template <> struct Wrapping<signed char> { typedef unsigned type; };
template <> struct Wrapping<int> { typedef unsigned type; };
template <> struct Wrapping<long long> { typedef u64 type; };

template <int OP, class E>
__device__ inline E combine_wide(E a, E b) {
  typedef typename Wrapping<E>::type W;
  if (OP == PROD) return E(W(a) * W(b));
  if (OP == MAX) return a < b ? b : a;
  if (OP == MIN) return b < a ? b : a;
  return E(W(a) + W(b));
}

template <class E>
__device__ inline E divide(E x, unsigned ranks) {
  const bool fraction = E(0.5f) != E(0), negative = E(-1) < E(0);
  if (fraction) return x / E(ranks);
  if (sizeof(E) <= sizeof(int)) return negative ? E((int)x / (int)ranks) : E((unsigned)x / ranks);  // few registers
  return negative ? E((long long)x / (long long)ranks) : E((u64)x / ranks);
}

#if defined(__CUDACC__)
// NVIDIA's compilers (every one tried, 12.4 to 13.2) take every fourth byte of a pack for sign-extended when its sum is
// divided by 2, 4 or 8: an average of -6 becomes 122.  Keeping sums in int does not help, they are narrowed again.  So the
// extension is an instruction of ours.  Bytes without sign are masked after the shift, and no other reduction shifts.
__device__ inline signed char divide(signed char x, unsigned ranks) {
  int extended;
  asm("cvt.s32.s8 %0, %1;" : "=r"(extended) : "h"((short)x));
  return (signed char)(extended / (int)ranks);
}
#endif

// One step of a reduction, in the storage type.
__device__ inline T combine(T a, T b) { return narrow(combine_wide<REDOP>(widen(a), widen(b)), T()); }

// The last step, after all ranks are combined: the average divides.
__device__ inline T finish(T x, unsigned ranks) {
  return REDOP == AVG ? narrow(divide(widen(x), ranks), T()) : x;
}

// Whether large pieces for another rank may be sent past the caches (World::streamed says from which size on).  Never on
// a GPU, where `stream` is a plain store: as a constant, so that none of it is compiled there.
#if defined(__CUDACC__)
constexpr bool STREAMS = false;
template <class E> __device__ inline void stream(E* target, const E& value) { *target = value; }
template <class E> __device__ inline void fetch_ahead(const E*, unsigned) {}
#else
constexpr bool STREAMS = true;
#endif

struct alignas(16) Pack {
  static const unsigned LANES = 16 / sizeof(T);
  T lane[LANES];
};

__device__ inline Pack combine(Pack a, Pack b) {
  for (unsigned i = 0; i < Pack::LANES; i++) a.lane[i] = combine(a.lane[i], b.lane[i]);
  return a;
}

__device__ inline Pack finish(Pack x, unsigned ranks) {
  for (unsigned i = 0; i < Pack::LANES; i++) x.lane[i] = finish(x.lane[i], ranks);
  return x;
}

// A rank's own input and its result, which no rank reads again in this call: a GPU's cache gives such lines up first, and
// keeps what is in FIFOs.  Own input alone may be read so: nothing holds such a load behind a flag.  A CPU does it by
// itself, and what goes past its caches is what others read (`stream`).
template <class E> __device__ inline E read_once(const E* from) { return *from; }
template <class E> __device__ inline void write_once(E* to, const E& value) { *to = value; }
#if defined(__CUDACC__)
union PackBits {
  uint4 bits;
  Pack pack;
};
__device__ inline Pack read_once(const Pack* from) {
  PackBits x;
  x.bits = __ldcs((const uint4*)from);
  return x.pack;
}
__device__ inline void write_once(Pack* to, const Pack& value) {
  PackBits x;
  x.pack = value;
  __stcs((uint4*)to, x.bits);
}
#endif

__device__ inline bool aligned(const void* a, const void* b) { return ((u64)a | (u64)b) % sizeof(Pack) == 0; }
