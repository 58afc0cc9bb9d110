// Where the time of a call goes.  With -DTRACED, thread 0 of each block notes at the end of each phase what the phase
// was and when it ended; phases follow one another without gaps.  With -DWITH_DELAYS, for the stress check, it loses
// world.trace nanoseconds where a phase ends, once in a call.  Otherwise nothing here compiles to anything.
//
// A block's log lies in its own rank's window, at world.trace behind the flags; collbench/measure/tracing.py reads it after the
// launch.  Only the last launch is kept: each starts its log anew.
#pragma once
#include "world.cuh"

enum class Phase : unsigned {
  WAITED,     // for a flag or a packet of another rank
  MOVED,      // bytes, without arithmetic
  ADDED,      // and moved what was added
  PUBLISHED,  // barriers, fences and flags, so that others see what was done
  WORKED,     // moved or added: the next stamp of either says which
  PHASES
};

const unsigned STAMPS = 2048;  // that a log holds; sums go on beyond them

struct Stamp {
  u64 ticks, phase;
};

struct alignas(128) Log {
  u64 nanoseconds[2], ticks[2];  // at the start and the end of the call, by the device's common clock and by the finer one
  u64 spent[(unsigned)Phase::PHASES];  // ticks in each phase
  u64 stamps;                          // made, kept or not
  Stamp stamp[STAMPS];
};

#if defined(__CUDACC__)
__device__ inline u64 fine_clock() { return clock64(); }
__device__ inline u64 shared_clock() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
#endif

#if defined(TRACED)
struct Tally {
  u64 last, pending, stamps;
  u64 spent[(unsigned)Phase::PHASES];
};

__device__ inline Tally& tally() {  // thread 0's; in registers it would have to be handed through every function
  BLOCK_LOCAL Tally kept;
  return kept;
}

__device__ inline Log& log_of(const World& world) {
  return ((Log*)(world.fifo_of(world.rank()) + world.trace))[world.block()];
}

__device__ inline void begin_trace(const World& world) {
  if (threadIdx.x) return;
  Log& log = log_of(world);
  tally() = Tally();
  log.nanoseconds[0] = shared_clock();
  log.ticks[0] = tally().last = fine_clock();
}

__device__ OUTLINED inline void stamp(const World& world, Phase phase) {
  if (threadIdx.x) return;
  Tally& own = tally();
  const u64 now = fine_clock(), passed = now - own.last;
  if (own.stamps < STAMPS) log_of(world).stamp[own.stamps] = Stamp{now, (u64)phase};
  own.stamps++;
  own.last = now;
  if (phase == Phase::WORKED) own.pending += passed;
  else if (phase == Phase::WAITED) own.spent[(unsigned)phase] += passed;
  else own.spent[(unsigned)phase] += passed + own.pending, own.pending = 0;
}

// A phase of all threads: it ends with the last of them.
__device__ inline void stamp_block(const World& world, Phase phase) {
  __syncthreads();
  stamp(world, phase);
}

__device__ inline void end_trace(const World& world) {
  if (threadIdx.x) return;
  Log& log = log_of(world);
  log.ticks[1] = fine_clock();
  log.nanoseconds[1] = shared_clock();
  log.stamps = tally().stamps;
  for (unsigned phase = 0; phase < (unsigned)Phase::PHASES; phase++) log.spent[phase] = tally().spent[phase];
}
#elif defined(WITH_DELAYS)
// Nothing halts a kernel on a GPU from outside.  So a block itself comes late at the end of a phase drawn by lot: thread
// 0, and the ranks that wait for it.  Most kernels have few phases a call, so early ones are drawn more often.
__device__ inline unsigned& phases_left() {
  BLOCK_LOCAL unsigned kept;
  return kept;
}

__device__ inline void begin_trace(const World& world) {
  if (threadIdx.x) return;
  const unsigned draw = unsigned((fine_clock() ^ (u64)world.rank() << 20 ^ (u64)world.block() << 32) *
                                     0x9E3779B97F4A7C15ULL >> 32);
  phases_left() = (draw & 0xffff) % (1U << (draw >> 16) % 6);
}

__device__ OUTLINED inline void stamp(const World& world, Phase) {
  if (threadIdx.x || phases_left()--) return;  // after the last it counts down from 2^32
  for (const u64 start = shared_clock(); shared_clock() - start < world.trace;) {}
}

__device__ inline void stamp_block(const World& world, Phase phase) {
  __syncthreads();
  stamp(world, phase);
}

__device__ inline void end_trace(const World&) {}
#else
__device__ inline void begin_trace(const World&) {}
__device__ inline void stamp(const World&, Phase) {}
__device__ inline void stamp_block(const World&, Phase) {}
__device__ inline void end_trace(const World&) {}
#endif
