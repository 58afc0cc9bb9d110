// Flags between ranks: the only file that knows memory order.
//
// A flag is one aligned 32-bit word with one writer, holding a number that only grows, modulo 2^32.  It is stored with
// release and loaded with acquire semantics, so a reader of the number sees everything that was written before it;
// there is no read-modify-write, which PCIe peers do not offer, and never a reset.
//
// The scope is the system's.  With -DONE_DEVICE, for ranks of one process that all live on one GPU, it is that GPU's: a
// fence then ends at the GPU's own cache, and waits neither for links nor for the host.  Both are proved
// (docs/kernels.md); at the scope of a GPU between two GPUs, stale data may be read.
//
// publish and await are called by a whole block.  The barrier inside them hands the one thread's ordering on to the
// others: without it, data may be written after the flag, or read before it.
#pragma once
#include "trace.cuh"

typedef unsigned Flag;

const unsigned WARP = 32;  // threads that take the same branch together

#if defined(__CUDACC__)
#if defined(ONE_DEVICE)
#define SCOPE "gpu"
#else
#define SCOPE "sys"
#endif
__device__ inline void store_release(Flag* flag, unsigned value) {
  asm volatile("st.release." SCOPE ".u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ inline void store_release(Flag* one, unsigned value, Flag* other, unsigned other_value) {
  asm volatile("fence.acq_rel." SCOPE "; st.relaxed." SCOPE ".u32 [%0], %1; st.relaxed." SCOPE ".u32 [%2], %3;"
               ::"l"(one), "r"(value), "l"(other), "r"(other_value)
               : "memory");
}
__device__ inline unsigned load_acquire(const Flag* flag) {
  unsigned value;
  asm volatile("ld.acquire." SCOPE ".u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ inline void store_relaxed(Flag* flag, unsigned value) {
  asm volatile("st.relaxed." SCOPE ".u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ inline unsigned load_relaxed(const Flag* flag) {
  unsigned value;
  asm volatile("ld.relaxed." SCOPE ".u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ inline unsigned count_in(unsigned* counter) {  // among the blocks of one rank, so at GPU scope
  unsigned before;
  asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}
// Orders accesses to one place through a unicast and a multicast address: nothing else does.
__device__ inline void fence_aliases() { asm volatile("fence.proxy.alias;" ::: "memory"); }
__device__ inline void relax(u64, unsigned) {}
__device__ inline void drain() {}
__device__ inline void note_wait(Flag*, const void*) {}
#else
#if !defined(PUBLISH_ORDER)  // tests weaken them, to see that the weakness is caught
#define PUBLISH_ORDER __ATOMIC_RELEASE
#endif
#if !defined(AWAIT_ORDER)
#define AWAIT_ORDER __ATOMIC_ACQUIRE
#endif
inline void store_release(Flag* flag, unsigned value) { __atomic_store_n(flag, value, PUBLISH_ORDER); }
inline void store_release(Flag* one, unsigned value, Flag* other, unsigned other_value) {
  store_release(one, value);  // a thread fence would do for both, but race detectors do not understand fences
  store_release(other, other_value);
}
inline unsigned count_in(unsigned* counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL); }
inline unsigned load_acquire(const Flag* flag) { return __atomic_load_n(flag, AWAIT_ORDER); }
inline void store_relaxed(Flag* flag, unsigned value) { __atomic_store_n(flag, value, __ATOMIC_RELAXED); }
inline unsigned load_relaxed(const Flag* flag) { return __atomic_load_n(flag, __ATOMIC_RELAXED); }
inline void fence_aliases() {}  // a host has one address for each place
// Behind the error word, at the start of a window: how far into the window that lies which this rank waits for.
inline void note_wait(Flag* error, const void* place) {
  store_relaxed(error + 1, unsigned((const unsigned char*)place - (const unsigned char*)error));
}
#endif

// publish for two flags at once: what was done before is visible to either reader, for the price of one fence.
__device__ inline void publish(Flag* one, unsigned number, Flag* other, unsigned other_number) {
  drain();
  __syncthreads();
  if (threadIdx.x == 0) store_release(one, number, other, other_number);
}

// All earlier writes of this block are visible to a reader that awaits this number.
__device__ inline void publish(Flag* flag, unsigned number) {
  drain();
  __syncthreads();
  if (threadIdx.x == 0) store_release(flag, number);
}

// A wait that outlasts world.spins sets `error` and lets the kernel run to its end with wrong data, which the host
// then throws away: better than a device that no longer answers.  Later waits give up soon, but not before some tries:
// a load of the error word ahead of the flag's would make each hop wait for two loads, one after the other.  The word
// orders nothing, so it is relaxed: no fence.
const u64 HOPE = 64;  // tries between two looks at the error word
const u64 LONG = 1 << 16;  // tries after which the place of the wait is noted, to explain a hang

struct Patience {
  const World& world;
  Flag* error;
  const void* place;  // in this rank's window, of what is waited for
  u64 tries;

  __device__ Patience(const World& world, Flag* error, const void* place)
      : world(world), error(error), place(place), tries(0) {}
  __device__ ~Patience() {
    if (tries >= LONG) note_wait(error, error);
  }

  // After a look that found nothing: whether to look again.
  __device__ bool again() {
    ++tries;
    if (tries == LONG) note_wait(error, place);
    if (tries % HOPE == 0 && load_relaxed(error)) return false;
    if (tries > world.spins) {
      store_relaxed(error, 1);
      return false;
    }
    relax(tries, world.yield_after);
    return true;
  }
};

// Wait until the flag has reached the number; the difference is compared, so the number may wrap.  A flag that
// seems to be LEAD ahead or more is an old one, of a block that was not launched for half a turn of the numbers.
const unsigned LEAD = 1 << 16;  // more than the meetings of two calls, or the slots of a ring

__device__ inline void look_until(const Flag* flag, unsigned number, const World& world, Flag* error) {
  for (Patience patience(world, error, flag); load_acquire(flag) - number >= LEAD && patience.again();) {}
}

__device__ inline void await(const Flag* flag, unsigned number, const World& world, Flag* error) {
  if (threadIdx.x == 0) look_until(flag, number, world, error);
  stamp(world, Phase::WAITED);
  __syncthreads();
}

// The same for two flags: two warps look, so that one load does not wait for the other, and one barrier ends both.
__device__ inline void await(const Flag* one, unsigned number, const Flag* other, unsigned other_number,
                             const World& world, Flag* error) {
  const unsigned second = blockDim.x > WARP ? WARP : 0;
  if (threadIdx.x == second) look_until(other, other_number, world, error);
  if (threadIdx.x == 0) look_until(one, number, world, error);
  stamp(world, Phase::WAITED);
  __syncthreads();
}

// One call of a kernel whose ranks all meet.  Its number is the same on every rank and for every block: it is kept in
// the window and moved on by the block that finishes last, so it survives a changing grid and the replay of a graph.
struct Call {
  const World& world;
  const unsigned rank, block;
  Window* const mine;
  const unsigned number;

  __device__ explicit Call(const World& world)
      : world(world),
        rank(world.rank()),
        block(world.block()),
        mine(world.window_of(rank)),
        number(mine->calls.word[0] + 1) {
    begin_trace(world);
  }

  __device__ Flag* met(unsigned at, unsigned by) const {
    return &world.window_of(at)->met[(block * world.ranks + by) * APART];
  }

  // All that any rank's block of this index did before is visible to all of them afterwards.  `place` counts the
  // meetings of one call, fewer than four for each number that it takes (`leave`).
  __device__ void meet(unsigned place) const {
    const unsigned value = 4 * number + place;
    drain();
    __syncthreads();
    for (unsigned i = threadIdx.x; i < world.ranks; i += blockDim.x) store_release(met(i, rank), value);
    stamp(world, Phase::PUBLISHED);
    for (unsigned i = threadIdx.x; i < world.ranks; i += blockDim.x)
      look_until(met(rank, i), value, world, &mine->error.word[0]);
    __syncthreads();
    stamp(world, Phase::WAITED);
  }

  // `numbers`: how many this call takes, on every rank alike.
  __device__ void leave(unsigned numbers = 1) const {
    end_trace(world);
    __syncthreads();
    if (threadIdx.x) return;
    if (world.blocks > 1) {  // a block alone needs no count, which costs a fence and a trip to the cache
      if (count_in(&mine->calls.word[1]) + 1 < world.blocks) return;
      mine->calls.word[1] = 0;
    }
    mine->calls.word[0] = number + numbers - 1;
  }
};
