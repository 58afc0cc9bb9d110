// The parts of CUDA that the kernels use, for a C++20 compiler, so that .cu files run on a CPU.
//
// Two forms.  The plain one is what `collbench` measures: a rank is a process and its grid is one block of one
// thread, so indices are constants, a barrier is nothing, and loops vectorise.  With -DHOST_GRID every CUDA thread is
// an operating-system thread with its own indices and a real barrier: for tests, where several ranks share a process.
//
// Atomics are the compiler's own (GCC and Clang have the same) and threads are POSIX's: <atomic>, <thread> and <vector>
// take longer to compile than most kernels.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <sched.h>
#include <time.h>
#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define __global__
#define __device__
#define __launch_bounds__(threads, blocks)
#define PARAMETER(type) const type&  // a kernel argument is passed by reference: nothing is copied at a launch
#define BLOCK_LOCAL static thread_local  // for thread 0 of a block alone
#define OUTLINED __attribute__((noinline))
#define INLINED __attribute__((always_inline))
#define INDEPENDENT _Pragma("GCC ivdep")  // iterations of the next loop touch different elements

struct Dim { unsigned x; };

#ifdef HOST_GRID
#include <pthread.h>
inline thread_local Dim threadIdx, blockIdx, blockDim, gridDim;

// A block: its barrier, and what its threads hand to each other.
struct Block {
  struct Hand { unsigned long long word, taken; };  // a number and, below it, a word; the number last taken from others
  pthread_barrier_t barrier;
  Hand* hands;

  explicit Block(unsigned threads) : hands(new Hand[threads]()) { pthread_barrier_init(&barrier, nullptr, threads); }
  Block(const Block&) = delete;
  ~Block() {
    pthread_barrier_destroy(&barrier);
    delete[] hands;
  }
};
inline thread_local Block* own_block;
inline thread_local unsigned handed;  // so many words, by this thread and all of its team
inline void __syncthreads() { pthread_barrier_wait(&own_block->barrier); }

// A word of another thread among the `width` that call together.  All is relaxed, since a shuffle orders no memory: what
// needs an order must get it elsewhere, or race detectors say so.
template <class W>
inline W __shfl_sync(unsigned, W value, unsigned from, unsigned width) {
  Block::Hand* const team = own_block->hands + threadIdx.x / width * width;
  const unsigned long long number = ++handed;
  for (unsigned i = 0; i < width; i++)  // a reader that has not taken the previous word must still find it
    while (__atomic_load_n(&team[i].taken, __ATOMIC_RELAXED) < number - 1) sched_yield();
  __atomic_store_n(&team[threadIdx.x % width].word, number << 32 | std::bit_cast<unsigned>(value), __ATOMIC_RELAXED);
  unsigned long long word;
  while ((word = __atomic_load_n(&team[from].word, __ATOMIC_RELAXED)) >> 32 != number) sched_yield();
  __atomic_store_n(&team[threadIdx.x % width].taken, number, __ATOMIC_RELAXED);
  return std::bit_cast<W>(unsigned(word));
}
#else
inline constexpr Dim threadIdx{0}, blockIdx{0}, blockDim{1}, gridDim{1};
inline void __syncthreads() {}
#endif

// Where a spinning rank breathes.  With a core of its own it must not yield, as a sleep costs microseconds; with more
// ranks than cores it must, since the rank it waits for may need this very core.
inline void relax(unsigned long long tries, unsigned yield_after) {
  if (yield_after && tries % yield_after == 0) sched_yield();
#if defined(__x86_64__)
  else if (tries > 64) __builtin_ia32_pause();
#endif
}

// A store that goes past the caches.  Data that only another core will read is better not kept here: a line that this
// core holds must be fetched from it, one by one, and when it is written again be taken away from the reader first.
// Measured on two cores that share no cache: 2.3 GB/s with ordinary stores, 13 to 20 with these.  Where a cache is shared
// ordinary stores win until it is full, so ranks measure from which size on they take these (World::streamed).
// They are not ordered by a release store; `drain` must come before it.
template <class E>
inline void stream(E* target, const E& value) {
#if defined(__x86_64__)
  if constexpr (sizeof(E) == 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(target), std::bit_cast<__m128i>(value));
    return;
  }
#endif
  *target = value;
}

// Asks for `count` elements that a loop will load soon.  A core's own prefetcher ends at each page of 4 KiB and starts
// anew on the next; 1 KiB is what memory answers with during its latency.
const std::size_t AHEAD = 1024, CACHE_LINE = 64;
template <class E>
inline void fetch_ahead(const E* place, unsigned count) {
  const char* const first = reinterpret_cast<const char*>(place) + AHEAD;
  for (std::size_t line = 0; line < count * sizeof(E); line += CACHE_LINE) __builtin_prefetch(first + line);
}

inline void drain() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// A clock that every process reads alike, in nanoseconds, and a finer and cheaper one.
inline unsigned long long shared_clock() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1000000000ULL * now.tv_sec + now.tv_nsec;
}
inline unsigned long long fine_clock() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return shared_clock();
#endif
}

inline float half_to_float(unsigned short bits);
inline unsigned short float_to_half(float value);

#if defined(__FLT16_MANT_DIG__)
inline float half_to_float(unsigned short bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
inline unsigned short float_to_half(float value) {
  return std::bit_cast<unsigned short>(static_cast<_Float16>(value));
}
#else
// Compilers without _Float16: exact for every half; the narrowing rounds to nearest even and does not know NaNs.
inline float half_to_float(unsigned short bits) {
  const float magnitude = std::bit_cast<float>(static_cast<unsigned>(bits & 0x7fff) << 13) * 0x1p112f;
  return bits & 0x8000 ? -magnitude : magnitude;
}
inline unsigned short float_to_half(float value) {
  const unsigned sign = std::bit_cast<unsigned>(value) >> 16 & 0x8000;
  const unsigned scaled = std::bit_cast<unsigned>((value < 0 ? -value : value) * 0x1p-112f);
  const unsigned rounded = (scaled + 0xfff + (scaled >> 13 & 1)) >> 13;
  return static_cast<unsigned short>(sign | (rounded > 0x7c00 ? 0x7c00 : rounded));
}
#endif

inline unsigned long long atomicAdd(unsigned long long* target, unsigned long long value) {
  return __atomic_fetch_add(target, value, __ATOMIC_RELAXED);
}
inline unsigned long long atomicMin(unsigned long long* target, unsigned long long value) {
  unsigned long long seen = __atomic_load_n(target, __ATOMIC_RELAXED);
  const int relaxed = __ATOMIC_RELAXED;
  while (value < seen && !__atomic_compare_exchange_n(target, &seen, value, true, relaxed, relaxed)) {}
  return seen;
}

// As cuLaunchKernel: `arguments[i]` points to the i-th argument.
template <class... P>
void call(void (*kernel)(P...), void** arguments) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cvref_t<P>*>(arguments[I])...);
  }(std::index_sequence_for<P...>{});
}

#ifdef HOST_GRID
// One CUDA thread of a grid: where it is, and what it runs.
template <class... P>
struct Thread {
  void (*kernel)(P...);
  void** arguments;
  Dim thread, block, threads, blocks;
  unsigned launches;
  Block* own;
  pthread_t handle;

  static void* run(void* self) {
    const Thread& here = *static_cast<Thread*>(self);
    threadIdx = here.thread, blockIdx = here.block, blockDim = here.threads, gridDim = here.blocks;
    own_block = here.own;
    for (unsigned count = 0; count < here.launches; count++) call(here.kernel, here.arguments);
    return nullptr;
  }
};
#endif

template <class... P>
void launch(void (*kernel)(P...), void** arguments, unsigned blocks, unsigned threads, unsigned launches) {
#ifdef HOST_GRID
  auto* const own = new Block*[blocks];
  auto* const grid = new Thread<P...>[blocks * threads];
  for (unsigned block = 0; block < blocks; block++) own[block] = new Block(threads);
  for (unsigned index = 0; index < blocks * threads; index++) {
    const unsigned block = index / threads;
    grid[index] = {kernel, arguments, {index % threads}, {block}, {threads}, {blocks}, launches, own[block], {}};
    if (pthread_create(&grid[index].handle, nullptr, Thread<P...>::run, &grid[index])) __builtin_trap();
  }
  for (unsigned index = 0; index < blocks * threads; index++) pthread_join(grid[index].handle, nullptr);
  for (unsigned block = 0; block < blocks; block++) delete own[block];
  delete[] grid;
  delete[] own;
#else
  (void)blocks, (void)threads;
  for (unsigned count = 0; count < launches; count++) call(kernel, arguments);
#endif
}
