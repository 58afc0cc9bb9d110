// Formats narrower than fp32: how a group of elements is written to a wire, and read back.
//
// Compile with -DWIRE=<struct>: the names stand in collbench/datatypes.py, with what each format may be wrong by.
//
// A group is 32 elements, as in the OCP's microscaling formats (MX 1.0), and goes by itself: `Code`s for its elements,
// and beside them one `Side`.  With a scale that is the exponent of the group's largest magnitude, in 8 bits: products
// with powers of two are exact, so that all that is lost is lost by rounding, which is to nearest even.  An infinity or
// a NaN in a group makes all of it NaN: who looks for an overflow still finds it.
#pragma once
#include "prelude.cuh"

#if defined(__CUDACC__)
#define UNROLLED _Pragma("unroll")  // or what is indexed would lie in local memory
#else
#define UNROLLED
#endif

// How many threads share a group.  On a GPU eight: each has 16 bytes of fp32, so a warp's lanes lie side by side in memory
// and every access of it is to whole lines.  On a CPU one, whose loops over a group become vectors; tests take eight too.
#if !defined(TEAM)
#if defined(__CUDACC__)
#define TEAM 8
#else
#define TEAM 1
#endif
#endif

const unsigned GROUP = 32;
const unsigned OWN = GROUP / TEAM;  // elements that a thread has of a group: those from lane() * OWN on
const unsigned MAGNITUDE = 0x7fffffffU, MANTISSA = 23, BIAS = 127, NONFINITE = 255;

__device__ inline unsigned magnitude(float x) { return float_to_bits(x) & MAGNITUDE; }

// This thread's place in its team, and a word of the team's thread at another one; all of a team ask together.
#if TEAM == 1
__device__ inline unsigned lane() { return 0; }
template <class W> __device__ inline W word_of(unsigned, W word) { return word; }
#else
__device__ inline unsigned lane() { return threadIdx.x % TEAM; }
template <class W> __device__ inline W word_of(unsigned lane, W word) {
  const unsigned team = ((1U << TEAM) - 1) << threadIdx.x % 32 / TEAM * TEAM;  // nobody waits for the rest of the warp
  return __shfl_sync(team, word, lane, TEAM);
}
#endif

__device__ inline unsigned largest_of_team(unsigned most) {
  UNROLLED
  for (unsigned step = 1; step < TEAM; step *= 2) {
    const unsigned other = word_of(lane() ^ step, most);
    most = other > most ? other : most;
  }
  return most;
}

// Of a group: as bits, since magnitudes are ordered as their bits are, and these have one largest whatever the order.
__device__ inline unsigned largest(const float* x) {
  unsigned most = 0;
  UNROLLED
  for (unsigned i = 0; i < OWN; i++) most = magnitude(x[i]) > most ? magnitude(x[i]) : most;
  return largest_of_team(most);
}

// The scale of a group whose largest element has that exponent, where it is to become 2^TOP: multiplied by `down` when
// it is written, by `up` when it is read.  The smallest groups have the exponent at which both are still ordinary.
template <int TOP> struct Scale {
  static __device__ unsigned exponent(unsigned most) {
    const unsigned own = most >> MANTISSA;
    return own > TOP ? own : TOP + 1;
  }
  static __device__ float down(unsigned exponent) { return bits_to_float((2 * BIAS + TOP - exponent) << MANTISSA); }
  static __device__ float up(unsigned exponent) {
    return bits_to_float(exponent == NONFINITE ? MAGNITUDE : (exponent - TOP) << MANTISSA);
  }
};

// One of two words, without a branch: a CPU's compiler makes no vectors of products that only one of them needs.
__device__ inline unsigned either(bool first, unsigned one, unsigned other) {
  const unsigned mask = 0U - first;
  return (one & mask) | (other & ~mask);
}

struct Bfloat {  // the upper half of each fp32: no scale, since the range is the same
  typedef unsigned short Code;
  typedef unsigned char Side;
  static const unsigned CODES = GROUP, OWN_CODES = OWN;
  static const bool SIDED = false;
  static __device__ Side encode(const float* x, Code* codes) {
    UNROLLED
    for (unsigned i = 0; i < OWN; i++) {
      const unsigned bits = float_to_bits(x[i]);
      const bool whole = (bits & MAGNITUDE) <= NONFINITE << MANTISSA;  // rounding must not make an infinity of a NaN
      codes[i] = whole ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff;
    }
    return 0;
  }
  static __device__ void decode(const Code* codes, Side, float* x) {
    UNROLLED
    for (unsigned i = 0; i < OWN; i++) x[i] = bits_to_float((unsigned)codes[i] << 16);
  }
};

// A sign, EXPONENT bits, BITS of a mantissa; the group's largest element becomes 2^TOP or more, and overflows nothing.
template <class C, unsigned EXPONENT, unsigned BITS, int TOP> struct Small {
  typedef C Code;
  typedef unsigned char Side;
  static const unsigned CODES = GROUP, OWN_CODES = OWN;
  static const bool SIDED = true;
  static constexpr unsigned DROPPED = MANTISSA - BITS, SIGN = EXPONENT + BITS, OWN_BIAS = (1 << (EXPONENT - 1)) - 1;
  static constexpr unsigned NORMAL = (BIAS + 1 - OWN_BIAS) << MANTISSA;  // the smallest that has all bits, as fp32

  // A power of two is added whose last bit is worth as much as the code's last, which leaves the rounded bits at the end;
  // below NORMAL that is the same power for all, so that nothing is special about what is subnormal.
  static __device__ unsigned code(float x) {
    const unsigned bits = magnitude(x), own = bits & NONFINITE << MANTISSA, power = own > NORMAL ? own : NORMAL;
    const unsigned added = power + (DROPPED << MANTISSA);
    const unsigned digits = float_to_bits(bits_to_float(bits) + bits_to_float(added)) - added;
    return digits + ((power - NORMAL) >> DROPPED) | (float_to_bits(x) >> (31 - SIGN) & 1U << SIGN);
  }
  // A subnormal number is read as if it had the implicit bit, which is then subtracted.
  static __device__ float value(unsigned code) {
    const unsigned bits = code & ((1U << SIGN) - 1), missing = 0U - (bits < 1U << BITS);
    const unsigned whole = (bits << DROPPED) + (NORMAL - (1U << MANTISSA)) + (missing & 1U << MANTISSA);
    const float size = bits_to_float(whole) - bits_to_float(missing & NORMAL);
    return bits_to_float(float_to_bits(size) | code >> SIGN << 31);
  }
  static __device__ Side encode(const float* x, Code* codes) {
    const unsigned exponent = Scale<TOP>::exponent(largest(x));
    const float down = Scale<TOP>::down(exponent);
    UNROLLED
    for (unsigned i = 0; i < OWN; i++) codes[i] = code(x[i] * down);
    return exponent;
  }
  static __device__ void decode(const Code* codes, Side exponent, float* x) {
    const float up = Scale<TOP>::up(exponent);
    UNROLLED
    for (unsigned i = 0; i < OWN; i++) x[i] = value(codes[i]) * up;
  }
};
typedef Small<unsigned char, 4, 3, 7> E4m3;  // 448 is the largest

// The largest KEPT of a group as they are, with their places in the group, a byte each.  Magnitudes are told apart by all
// but their last five bits, in which the place stands, so that no two are equal.  Every thread of a team has all codes.
struct TopK {
  typedef float Code;
  typedef unsigned Side;
  static const unsigned KEPT = 4, CODES = KEPT, OWN_CODES = KEPT;
  static const bool SIDED = true;
  static __device__ Side encode(const float* x, Code* codes) {
    unsigned key[OWN], places = 0, before = ~0U;
    UNROLLED
    for (unsigned i = 0; i < OWN; i++) key[i] = (magnitude(x[i]) & ~(GROUP - 1)) | (lane() * OWN + i);
    UNROLLED
    for (unsigned k = 0; k < KEPT; k++) {
      unsigned most = 0;
      UNROLLED
      for (unsigned i = 0; i < OWN; i++) {
        const unsigned left = either(key[i] < before, key[i], 0);
        most = left > most ? left : most;
      }
      before = most = largest_of_team(most);
      places |= most % GROUP << 8 * k;
      codes[k] = word_of(most % GROUP / OWN, at(x, most % OWN));
    }
    return places;
  }
  static __device__ void decode(const Code* codes, Side places, float* x) {
    UNROLLED
    for (unsigned i = 0; i < OWN; i++) x[i] = 0;
    UNROLLED
    for (unsigned k = 0; k < KEPT; k++) put(x, (places >> 8 * k & 0xff) - lane() * OWN, codes[k]);
  }
#if TEAM > 1  // registers have no index; a place of another thread is none of these
  static __device__ float at(const float* x, unsigned place) {
    float value = 0;
    UNROLLED
    for (unsigned i = 0; i < OWN; i++) value = i == place ? x[i] : value;
    return value;
  }
  static __device__ void put(float* x, unsigned place, float value) {
    UNROLLED
    for (unsigned i = 0; i < OWN; i++) x[i] = i == place ? value : x[i];
  }
#else
  static float at(const float* x, unsigned place) { return x[place]; }
  static void put(float* x, unsigned place, float value) { x[place % GROUP] = value; }
#endif
};

#if !defined(WIRE)
#define WIRE E4m3
#endif
