// A kernel's view of the other ranks: addresses of their memory in this process.
#pragma once
#include "prelude.cuh"

// How many ranks a World has room for.  A World travels with every launch, so on a GPU its arrays are no longer than the
// run needs: 232 bytes for 8 ranks where 128 take 3 KB.
#if !defined(MAX_RANKS)
#define MAX_RANKS 128
#endif

// The start of every window, in cache lines of 128 bytes so that no two writers share one.
struct alignas(128) Line {
  unsigned word[32];
};

const u64 WINDOW_HEAD = 65536;  // bytes for the flags; FIFOs follow
const unsigned MAX_BLOCKS = 64;  // of each rank

// The part of a window that belongs to one block of a ring: each line has one writer.
struct Channel {
  Line arrived, room, own;  // own: pieces sent, pieces taken; kept from call to call
};

// Words between two flags of different writers: on a CPU they must not share a cache line.
#if defined(__CUDACC__)
const unsigned APART = 1;
#else
const unsigned APART = 32;
#endif

struct Window {
  Line error;
  Line calls;  // number of the last call, and blocks that have finished the current one
  Channel channel[MAX_BLOCKS];
  unsigned met[(WINDOW_HEAD - (2 + 3 * MAX_BLOCKS) * sizeof(Line)) / sizeof(unsigned)];  // by block, then by writer
};
static_assert(sizeof(Window) == WINDOW_HEAD, "the flags end where the FIFOs begin");

struct World {
  unsigned char* window[MAX_RANKS];  // flags, then FIFOs: the only memory that a peer writes
  unsigned char* send[MAX_RANKS];
  unsigned char* receive[MAX_RANKS];
  u64 spins;             // a wait that takes more tries gives up
  u64 trace;             // -DTRACED: where logs start, in bytes behind the flags; -DWITH_DELAYS: nanoseconds (trace.cuh)
#if defined(RANKS)  // known when the kernel is compiled: loops over the others are unrolled, and remainders cheap
  static constexpr unsigned ranks = RANKS;
  unsigned also_ranks;
#else
  unsigned ranks;
#endif
  unsigned first;        // this launch holds the ranks first, first + stride, ...
  unsigned stride;
  unsigned blocks;       // of each rank
  unsigned yield_after;  // on a CPU: tries between two offers of the core to another rank; 0 for never
  unsigned streamed;     // on a CPU: packs from which on a piece for another rank is stored past the caches

  __device__ Window* window_of(unsigned rank) const { return (Window*)window[rank]; }
  __device__ unsigned char* fifo_of(unsigned rank) const { return window[rank] + WINDOW_HEAD; }
  __device__ unsigned rank() const { return first + blockIdx.x / blocks * stride; }
  __device__ unsigned block() const { return blockIdx.x % blocks; }
};
