// All-reduce without a barrier, by packets.  Each rank sends its whole input into every other's inbox, and adds the
// arriving packets (TensorRT-LLM's and NCCL's one-shot LL).  The fewest steps there are, for the most bytes; for small messages.
//
// Buffers.  An inbox in each window: two halves of `room` packets for each source rank, used by turns of the call's
// parity.  A rank can fill a half again only after it has everyone's packets of the call in between, which they sent
// after reading that half.  Nothing else may ever be written there.
//
// Waits: each thread for the packets that it reads.  In place too: a thread sends an element before it
// stores the result there.
//
// Launch: as kernels/ring.cu.  Launched by collbench/algorithms/one_shot_ll.py.
#include "packets.cuh"

// Ranks at whose packets a thread of a GPU looks before it waits for the first: all of them if their number is known.
// One after the other, each look would cost a trip to memory of its own.  A CPU looks ahead by itself, and one by one is
// best there.
#if defined(RANKS)
#define TOGETHER RANKS
#elif defined(__CUDACC__)
#define TOGETHER 4
#endif

#if defined(TOGETHER)
template <class Place, class Own>
__device__ inline u64 add_inputs(unsigned ranks, unsigned rank, Place place, Own own, unsigned flag, const World& world,
                                 Flag* error) {
  u64 sum = 0;
  for (unsigned some = 0; some < ranks; some += TOGETHER) {
    u64 first[TOGETHER], second[TOGETHER];
    for (unsigned k = 0; k < TOGETHER; k++)  // in the own inbox too, where nothing ever comes: that saves a branch
      if (some + k < ranks) load_packets(place(some + k), first[k], second[k]);
    for (unsigned k = 0; k < TOGETHER && some + k < ranks; k++) {
      const unsigned from = some + k;
      const u64 x = from == rank ? own() : receive_packets(first[k], second[k], place(from), flag, world, error);
      sum = from ? combine_payload(sum, x) : x;
    }
  }
  return sum;
}
#else
template <class Place, class Own>
inline u64 add_inputs(unsigned ranks, unsigned rank, Place place, Own own, unsigned flag, const World& world,
                      Flag* error) {
  auto input = [&](unsigned from) { return from == rank ? own() : receive_packets(place(from), flag, world, error); };
  u64 sum = input(0);
  for (unsigned from = 1; from < ranks; from++) sum = combine_payload(sum, input(from));
  return sum;
}
#endif

// `bytes` in the array, at most room * 8; `fifo`: where the inbox starts in the windows, in bytes behind the flags.
extern "C" __global__ void __launch_bounds__(512, 1)
    one_shot_ll(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) room, PARAMETER(u64) bytes) {
  const Call call(world);
  const unsigned ranks = world.ranks, rank = call.rank, flag = 2 * call.number + 1;
  const unsigned char* const source = world.send[rank];
  unsigned char* const target = world.receive[rank];
  Flag* const error = &call.mine->error.word[0];
  auto inbox = [&](unsigned at, unsigned from) {
    return (Packets*)(world.fifo_of(at) + fifo) + ((call.number & 1) * ranks + from) * room;
  };
  const u64 first = call.block * blockDim.x + threadIdx.x, threads = world.blocks * blockDim.x;
  for (u64 i = first; i * PAYLOAD < bytes; i += threads) {
    const u64 own = load_payload(source, i * PAYLOAD, bytes);
    for (unsigned step = 1; step < ranks; step++) {
      const unsigned peer = (rank + step) % ranks;
      send_packets(&inbox(peer, rank)[i], own, flag);
    }
  }
  stamp(world, Phase::MOVED);
  for (u64 i = first; i * PAYLOAD < bytes; i += threads) {
    auto place = [&](unsigned from) { return &inbox(rank, from)[i]; };
    auto own = [&] { return load_payload(source, i * PAYLOAD, bytes); };
    const u64 sum = add_inputs(ranks, rank, place, own, flag, world, error);
    store_payload(target, i * PAYLOAD, bytes, finish_payload(sum, ranks));
  }
  stamp(world, Phase::ADDED);
  call.leave();
}
