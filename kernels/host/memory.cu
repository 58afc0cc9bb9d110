// Memory rates of a CPU's cores, measured by the ranks themselves for collbench/platforms/cpu/memory.py.
//
// traffic    Reads and writes so many bytes, in an order that memory likes and without waiting for anybody: no collective
//            that must read and write as many is faster.
// hand_over  Writes a piece into the next rank's buffer, as kernels do while they keep what they send, waits until everyone
//            has, and reads what has come: from which size on that is faster with stores past the caches, kernels use them.
//
// For CPUs alone: GPUs have no such choice, and copy engines that their owners measure (nvbandwidth).
#include "../flags.cuh"

const u64 LINE_PACKS = CACHE_LINE / sizeof(Pack), STRETCH = 64;  // lines moved between two looks at what else there is

static volatile u64 sink;  // keeps the compiler from dropping the reads

template <bool STREAMED>
inline void put(Pack* to, const Pack* from) {
  for (u64 k = 0; k < LINE_PACKS; k++) {
    if (STREAMED) stream(&to[k], from[k]);
    else to[k] = from[k];
  }
}

// Two halves side by side, for stores of both kinds get in each other's way less than those of one.
template <bool FIRST, bool SECOND>
inline void copy_lines(const Pack* from, Pack* to, u64 half, u64 first, u64 last) {
  for (u64 i = first * LINE_PACKS; i < last * LINE_PACKS; i += LINE_PACKS) {
    fetch_ahead(&from[i], 1);
    fetch_ahead(&from[half + i], 1);
    put<FIRST>(&to[i], &from[i]);
    put<SECOND>(&to[half + i], &from[half + i]);
  }
}

inline u64 read_lines(const Pack* from, u64 first, u64 last) {
  u64 seen = 0;
  const u64* const words = reinterpret_cast<const u64*>(from);
  for (u64 i = first * CACHE_LINE / 8; i < last * CACHE_LINE / 8; i++) seen ^= words[i];
  return seen;
}

template <bool STREAMED>
inline void write_lines(Pack* to, u64 first, u64 last) {
  const Pack value{};
  for (u64 i = first * LINE_PACKS; i < last * LINE_PACKS; i++) {
    if (STREAMED) stream(&to[i], value);
    else to[i] = value;
  }
}

// What is read and written is copied, in two halves; what there is more of one than of the other goes along with it.
template <bool FIRST, bool SECOND>
inline void move_all(const Pack* from, u64 read, Pack* to, u64 written) {
  const u64 half = (read < written ? read : written) / 2, both = 2 * half;  // lines
  const u64 more = read - both, extra = written - both;
  const u64 steps = (half + more + extra) / STRETCH + 1;
  auto until = [&](u64 lines, u64 step) { return lines / steps * step + lines % steps * step / steps; };
  u64 seen = 0;
  for (u64 step = 0; step < steps; step++) {
    copy_lines<FIRST, SECOND>(from, to, half * LINE_PACKS, until(half, step), until(half, step + 1));
    seen ^= read_lines(from + both * LINE_PACKS, until(more, step), until(more, step + 1));
    write_lines<SECOND>(to + both * LINE_PACKS, until(extra, step), until(extra, step + 1));
  }
  drain();
  sink = seen;
}

// Lines of 64 bytes; `streamed` of the two halves are stored past the caches.
extern "C" __global__ void __launch_bounds__(1, 1)
    traffic(PARAMETER(u64) from, PARAMETER(u64) read, PARAMETER(u64) to, PARAMETER(u64) written,
            PARAMETER(unsigned) streamed) {
  const Pack* const source = reinterpret_cast<const Pack*>(from);
  Pack* const target = reinterpret_cast<Pack*>(to);
  if (streamed == 0) move_all<false, false>(source, read, target, written);
  else if (streamed == 1) move_all<false, true>(source, read, target, written);
  else move_all<true, true>(source, read, target, written);
}

template <bool STREAMED>
inline void keep_and_send(Pack* kept, Pack* sent, u64 lines) {
  for (u64 i = 0; i < lines; i++) {
    write_lines<false>(kept, i, i + 1);
    write_lines<STREAMED>(sent, i, i + 1);
  }
}

// Lines of a piece; what is kept lies behind what comes.  Of no line it is two barriers, and touches no buffer.
extern "C" __global__ void __launch_bounds__(1, 1) hand_over(PARAMETER(World) world, PARAMETER(u64) lines) {
  const Call call(world);
  Pack* const kept = reinterpret_cast<Pack*>(world.receive[call.rank]) + lines * LINE_PACKS;
  Pack* const sent = reinterpret_cast<Pack*>(world.receive[(call.rank + 1) % world.ranks]);
  if (lines * LINE_PACKS >= world.streamed) keep_and_send<true>(kept, sent, lines);
  else keep_and_send<false>(kept, sent, lines);
  call.meet(0);
  sink = read_lines(reinterpret_cast<const Pack*>(world.receive[call.rank]), 0, lines);
  call.meet(1);
  call.leave();
}
