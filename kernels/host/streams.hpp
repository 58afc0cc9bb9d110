// What the two halves of the harness agree on: streams.cpp, which has the ranks, and streams_kernels.cpp, which has the
// kernels.  Apart, a change of a kernel costs the compiler no more than the kernel.
//
// Of the kernels' headers only those may stand here that no order of memory depends on: an inline function that both
// halves compile is one function, of either half.
#pragma once
#include <atomic>
#include <unistd.h>

#include "world.cuh"

// Stalls: at the start of a thread, round a barrier, within two packets, and before packets are received.

enum Place { NOWHERE, START, BARRIER, PACKETS, RECEIVE };

inline unsigned long long mixed(unsigned long long x) {  // splitmix64
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

struct Luck {
  unsigned long long state = 0;
  Place long_stall = NOWHERE;  // taken once
  unsigned milliseconds = 0;   // that it lasts at least
  unsigned quiet = 0;          // milliseconds in which nobody else gets on, before it ends

  unsigned draw(unsigned sides) { return unsigned(mixed(state += 0x9e3779b97f4a7c15ULL) % sides); }
};
inline thread_local Luck luck;

inline std::atomic<unsigned> steps = 0;  // that threads took; relaxed, so that it orders none of them
const unsigned MOST_MILLISECONDS = 200;

// Until all others wait for this thread, or have run as far ahead of it as nothing stops them.
inline void stall_for_long() {
  unsigned before = steps.load(std::memory_order_relaxed) - 1;
  for (unsigned past = 0, nap = luck.milliseconds; past < MOST_MILLISECONDS; past += nap, nap = luck.quiet) {
    usleep(nap * 1000);
    const unsigned now = steps.load(std::memory_order_relaxed);
    if (now == before) return;
    before = now;
  }
}

inline void stall(Place place) {
  steps.fetch_add(1, std::memory_order_relaxed);
  if (luck.long_stall == place) {
    luck.long_stall = NOWHERE;
    stall_for_long();
  } else if (luck.draw(16) == 0) {
    usleep(luck.draw(50));
  } else if (luck.draw(4) == 0) {
    sched_yield();
  }
}

// ---- calls ----

const unsigned PAIR_BYTES = 16, PAIR_DATA = 8;  // of two packets, and of what they carry

// One call's arguments, of whichever kernel.
struct Arguments {
  u64 flags_fifo, pipelined_fifo, ring_ll_fifo, one_shot_ll_fifo;
  u64 slot, slot_bytes, piece, chunk, room, narrow_fifo, box;
  unsigned slots, count, root;
};

enum Collective { ALLREDUCE, BROADCAST, ALLGATHER, REDUCESCATTER };

struct Kernel {
  const char* name;  // none behind the last
  Collective collective;
  void (*run)(const World& world, const Arguments& call);
  bool in_place = true;
};
extern const Kernel KERNELS[];
