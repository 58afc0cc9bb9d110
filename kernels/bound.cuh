// Bound on the error of a sum that was sent in a narrower format.  It checks narrow.cu, and shares no code with it.
// collbench/datatypes.py is the definition, and a test holds the two against each other.
//
// For an element with the terms x_r of n ranks.  M_r: the largest magnitude in its group of 32, by rank.
//   Written once       lost(x, M) = max(relative |x|, absolute * 2^floor(log2(M)))
//                      a format's rounding: half a unit of its mantissa, or half a step of its scale if that is more
//   or, if it keeps k  lost(x, t) = |x| if |x| <= t, else 0      where t is the next largest of the group
//   Inputs             I = sum lost(x_r, M_r) - min lost(x_r, M_r)      the owner's own term is never written
//   Additions          A = n 2^-24 sum (|x_r| + lost(x_r, M_r))         n - 1 roundings, of partial sums that are no larger
//   so what is added is off by I + A at most, and no larger than |S| + I + A, with S the exact sum.
//   The sum, written   lost(|S| + I + A, M), M <= max |S_j| + N          over the group, where by the same reasoning
//                      N = sum lost(M_r, M_r) + n 2^-24 sum 2 M_r        no element of the group is off by more
//   or, if it keeps k  the next largest of what was added is no more than that of the |S_j| + N =: t.  Either the element
//                      is sent, and off by I + A; or it is dropped, the result 0 and off by |S|, which can only be if
//                      |S| - I - A <= t.
// All is computed in fp32, so the bound is widened by 2^-10 of itself; what makes it tight is that magnitudes differ
// from group to group and from rank to rank (Recipe::grades): a scale that is twice as large is over it in some elements,
// and another group's in most.
#pragma once
#include "recipe.cuh"

#if defined(__CUDACC__)
#define UNROLLED _Pragma("unroll")  // or what is indexed would lie in local memory
#else
#define UNROLLED
#endif

const unsigned GROUP = 32, MOST_KEPT = 4;  // of a format that keeps the largest
const float ROUNDING = 1.0f / (1 << 24), SLACK = 1.0f + 1.0f / 1024;

struct Wire {
  float relative, absolute;
  unsigned kept;  // 0 for a format that rounds
};

// The largest numbers that it was shown, in order.
struct Largest {
  float top[MOST_KEPT + 1];

  __device__ Largest() {
    UNROLLED
    for (unsigned i = 0; i <= MOST_KEPT; i++) top[i] = 0;
  }
  __device__ void show(float size, bool all) {
    UNROLLED
    for (unsigned i = 0; i <= MOST_KEPT; i++) {
      if (i && !all) continue;
      const float less = size < top[i] ? size : top[i];
      top[i] = size < top[i] ? top[i] : size;
      size = less;
    }
  }
  __device__ float behind(unsigned kept) const {  // the first that is not kept
    float size = 0;
    UNROLLED
    for (unsigned i = 0; i <= MOST_KEPT; i++) size = i == kept ? top[i] : size;
    return size;
  }
};

__device__ inline float number(float x) { return x; }
template <class E> __device__ inline float number(E) { return 0; }  // there are no wires for other types
__device__ inline float size_of(float x) { return x < 0 ? -x : x; }
__device__ inline float power_below(float x) { return float_of(bits_of(x) & 0x7f800000U); }
__device__ inline float larger(float a, float b) { return a < b ? b : a; }

__device__ inline float lost(const Wire& wire, float size, const Largest& group) {
  if (wire.kept) return size <= group.behind(wire.kept) * SLACK ? size : 0;
  return larger(wire.relative * size, wire.absolute * power_below(group.top[0]));
}

// SIZE elements of a group, from `first` on, with what their sum is and may be off by; the array ends at `end`.
template <unsigned SIZE> struct Bounded {
  float exact[SIZE], bound[SIZE];

  OUTLINED __device__ Bounded(const Recipe& how, const Wire& wire, u64 first, u64 end) {
    const u64 group = first / GROUP * GROUP;
    const unsigned length = end - group < GROUP ? unsigned(end - group) : GROUP;
    float errors[SIZE], least[SIZE], sizes[SIZE], noise = 0;
    for (unsigned i = 0; i < SIZE; i++) exact[i] = errors[i] = sizes[i] = 0, least[i] = 3e38f;
    for (unsigned rank = 0; rank < how.ranks; rank++) {
      const Largest own = of_rank(how, wire, rank, group, length);
      noise += wire.kept ? own.behind(wire.kept) : lost(wire, own.top[0], own);
      noise += how.ranks * ROUNDING * 2 * own.top[0];
      Tile<SIZE> tile(how, first);
      tile.input(how, rank);
      for (unsigned i = 0; i < SIZE; i++) {
        const float term = number(tile.value[i]), size = size_of(term), error = lost(wire, size, own);
        exact[i] += term, errors[i] += error, sizes[i] += size + error;
        least[i] = error < least[i] ? error : least[i];
      }
    }
    const Largest sums = of_sums(how, wire, group, length);
    for (unsigned i = 0; i < SIZE; i++) {
      const float off = errors[i] - least[i] + how.ranks * ROUNDING * sizes[i], size = size_of(exact[i]);
      bound[i] = (wire.kept ? kept(wire, size, off, sums, noise) : rounded(wire, size, off, sums, noise)) * SLACK;
    }
  }

  static __device__ float kept(const Wire& wire, float size, float off, const Largest& sums, float noise) {
    return size - off <= (sums.behind(wire.kept) + noise) * SLACK ? larger(off, size) : off;
  }
  static __device__ float rounded(const Wire& wire, float size, float off, Largest sums, float noise) {
    sums.top[0] += noise;
    return off + lost(wire, size + off, sums);
  }

  static __device__ Largest of_rank(const Recipe& how, const Wire& wire, unsigned rank, u64 group, unsigned length) {
    Largest largest;
    for (unsigned start = 0; start < length; start += SIZE) {
      Tile<SIZE> tile(how, group + start);
      tile.input(how, rank);
      for (unsigned i = 0; i < SIZE && start + i < length; i++) largest.show(size_of(number(tile.value[i])), wire.kept);
    }
    return largest;
  }
  static __device__ Largest of_sums(const Recipe& how, const Wire& wire, u64 group, unsigned length) {
    Largest largest;
    for (unsigned start = 0; start < length; start += SIZE) {
      float sum[SIZE];
      for (unsigned i = 0; i < SIZE; i++) sum[i] = 0;
      Tile<SIZE> tile(how, group + start);
      for (unsigned rank = 0; rank < how.ranks; rank++) {
        tile.input(how, rank);
        for (unsigned i = 0; i < SIZE; i++) sum[i] += number(tile.value[i]);
      }
      for (unsigned i = 0; i < SIZE && start + i < length; i++) largest.show(size_of(sum[i]), wire.kept);
    }
    return largest;
  }
};
