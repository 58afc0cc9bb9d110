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
//
// Where a wire is narrower than the elements (bound.cuh) `compare_bounded` and `probe_compare_bounded` do the same.
#include "bound.cuh"

struct Verdict {
  u64 seen, wrong;  // elements that were looked at, and those that differ
  u64 first, got;   // the first of these: its call above CALL_BITS, its index below; on a CPU also its bits
  u64 digest;       // of elements that may be off: the same on ranks that hold the same bits
};
const unsigned CALL_BITS = 48;

// A stored element as a number whose difference counts the representable values in between (floating point only).
__device__ inline Bits ordered(T x) {
  const Bits bits = Stored{x}.bits, sign = Bits(Bits(1) << (8 * sizeof(T) - 1));
  return bits & sign ? Bits(sign - (bits & Bits(~sign))) : Bits(bits + sign);
}

__device__ inline bool same(T got, T wanted, unsigned ulps) {
  const Bits a = ordered(got), b = ordered(wanted);
  return Bits(a < b ? b - a : a - b) <= ulps;
}

// Findings of a thread so far.
struct Finding {
  u64 seen, wrong, first, got, digest;

  __device__ Finding() : seen(0), wrong(0), first(~0ULL), got(0), digest(0) {}

  // `at`: the call and the index of the first of them.
  template <unsigned SIZE>
  OUTLINED __device__ void look(const T* got, const Tile<SIZE>& tile, unsigned length, u64 at, unsigned ulps) {
    unsigned differ = 0;
    for (unsigned i = 0; i < length; i++) differ += !same(got[i], tile.value[i], ulps);
    for (unsigned i = 0; differ && i < length; i++)
      if (at + i < first && !same(got[i], tile.value[i], ulps)) first = at + i, this->got = Stored{got[i]}.bits;
    seen += length, wrong += differ;
  }

  // The same where each element may be off by a bound; whatever is no number is beyond it.
  template <unsigned SIZE>
  __device__ void look(const T* got, const Bounded<SIZE>& wanted, unsigned length, u64 at) {
    for (unsigned i = 0; i < length; i++) {
      digest += mix(mix(unsigned(at + i)) ^ unsigned(Stored{got[i]}.bits));
      if (size_of(number(got[i]) - wanted.exact[i]) <= wanted.bound[i]) continue;
      wrong++;
      if (at + i < first) first = at + i, this->got = Stored{got[i]}.bits;
    }
    seen += length;
  }

  __device__ void report(Verdict* verdict) const {
#if defined(__CUDACC__)
    if (!seen) return;
    atomicAdd(&verdict->seen, seen);
    if (digest) atomicAdd(&verdict->digest, digest);
    if (!wrong) return;
    atomicAdd(&verdict->wrong, wrong);
    atomicMin(&verdict->first, first);
#else
    verdict->seen += seen, verdict->wrong += wrong, verdict->digest += digest;
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

// The result of a chain of matrix products (collbench/platforms/interface.py) against its start: row r must be row
// |rows[r]| - 1 of the start, times the sign of rows[r].  NaN is equal to nothing.
extern "C" __global__ void compare_product(PARAMETER(u64) got, PARAMETER(u64) start, PARAMETER(u64) rows,
                                           PARAMETER(unsigned) size, PARAMETER(u64) verdict) {
  const u64 count = (u64)size * size, stride = (u64)gridDim.x * blockDim.x;
  Finding finding;
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride, finding.seen++) {
    const int row = ((const int*)rows)[at / size];
    const float wanted = ((const float*)start)[(u64)((row < 0 ? -row : row) - 1) * size + at % size];
    if (((const float*)got)[at] == (row < 0 ? -wanted : wanted)) continue;
    finding.wrong++;
    if (at < finding.first) finding.first = at;
  }
  finding.report((Verdict*)verdict);
}

// Elements that a thread bounds at once: one on a GPU, for want of registers; on a CPU a group, whose extremes are then
// found once.
#if defined(__CUDACC__)
const unsigned BOUNDED = 1;
#else
const unsigned BOUNDED = GROUP;
#endif

// A stretch of `count` elements from `first` on, which starts with a group, of an array that ends at `end`.  Not even
// compiled for types that no wire is for.
template <bool KNOWN = GRADES>
__device__ inline void look_within(Finding& finding, const T* got, const Recipe& how, const Wire& wire, u64 first,
                                   unsigned count, u64 end, u64 call) {
  if constexpr (KNOWN) {
    for (unsigned at = 0; at < count; at += BOUNDED) {
      const Bounded<BOUNDED> wanted(how, wire, first + at, end);
      finding.look(got + at, wanted, Tile<BOUNDED>::filled(count - at), call << CALL_BITS | (first + at));
    }
  }
}

// `got` against the sums over all ranks, each within its bound.
extern "C" __global__ void __launch_bounds__(256, 1)
    compare_bounded(PARAMETER(u64) got, PARAMETER(u64) count, PARAMETER(Recipe) how, PARAMETER(Wire) wire,
                    PARAMETER(u64) verdict) {
  const u64 stride = (u64)BOUNDED * gridDim.x * blockDim.x;
  Finding finding;
  for (u64 first = (u64)BOUNDED * (blockIdx.x * blockDim.x + threadIdx.x); first < count; first += stride)
    look_within(finding, (const T*)got + first, how, wire, first, Tile<BOUNDED>::filled(count - first), count, 0);
  finding.report((Verdict*)verdict);
}

// Where a call of the stress check looks, alike in every block of a buffer: `runs` stretches of `length` elements in each
// part of `part` elements, among them its first and its last; or all of a part that they would fill.  The seed moves the
// others, so that calls look at different places; where only whole groups can be judged all start at multiples of `grain`.
// Stretches are counted from the ends of the parts, where a peer that
// lags behind is at work.
struct Probe {
  u64 block, part;
  unsigned runs, length, grain, reserved;

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
    const u64 last = (size - length + grain - 1) / grain * grain;
    if (run == runs - 1) return Stretch{start + last, unsigned(size - last)};
    const u64 cell = size / runs, room = run ? cell - length + 1 : 1;
    const u64 first = run * cell + ((u64)mix(seed + run) * room >> 32);
    return Stretch{start + first - first % grain, length};
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

// The same of a block of sums, each within its bound: stretches are groups then.
extern "C" __global__ void __launch_bounds__(256, 1)
    probe_compare_bounded(PARAMETER(u64) got, PARAMETER(Probe) probe, PARAMETER(Recipe) how, PARAMETER(Wire) wire,
                          PARAMETER(u64) call, PARAMETER(u64) verdict) {
  Finding finding;
  probe.visit(how.seed, [&](u64 first, unsigned count, u64) {
    look_within(finding, (const T*)got + first, how, wire, first, count, probe.block, call);
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
