// Declarations shared by the two halves of the harness.  streams.cpp has the ranks, streams_kernels.cpp has the
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
  unsigned looks = 0;          // in vain, since its last step
  unsigned* error = nullptr;   // of its rank's window

  unsigned draw(unsigned sides) { return unsigned(mixed(state += 0x9e3779b97f4a7c15ULL) % sides); }
};
inline thread_local Luck luck;

inline std::atomic<unsigned> steps = 0, looks = 0;  // of threads, and their looks in vain in the meantime; relaxed, so
inline std::atomic<unsigned> raised = 0;            // that they order none; flags and packets of a user's kernel
inline void count_raised() { raised.fetch_add(1, std::memory_order_relaxed); }  // races.py puts it into stores
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
  luck.looks = 0;
  if (luck.long_stall == place) {
    luck.long_stall = NOWHERE;
    stall_for_long();
  } else if (luck.draw(16) == 0) {
    usleep(luck.draw(50));
  } else if (luck.draw(4) == 0) {
    sched_yield();
  }
}

// Many threads wait for few cores.
inline void give_way(unsigned long long tries) {
  looks.fetch_add(1, std::memory_order_relaxed);
  if (tries < 20) sched_yield();
  else usleep(20);
}

// A look at a flag or packet by a kernel's own loop.
inline void look(const void* place) {
  if (luck.long_stall == RECEIVE) stall(RECEIVE);
  if (++luck.looks < 3) return;
  give_way(luck.looks);
  if (luck.looks % 256 == 0 && luck.error)  // noted as flags.cuh does
    __atomic_store_n(luck.error + 1, unsigned((const char*)place - (const char*)luck.error), __ATOMIC_RELAXED);
}

// ---- calls ----

const unsigned PAIR_BYTES = 16, PAIR_DATA = 8;  // of two packets, and of what they carry

// One call's arguments, of whichever kernel.
struct Arguments {
  u64 flags_fifo, pipelined_fifo, ring_ll_fifo, one_shot_ll_fifo;
  u64 slot, slot_bytes, piece, chunk, room, narrow_fifo, box, fifo;
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
