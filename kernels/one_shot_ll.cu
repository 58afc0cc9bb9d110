// All-reduce without a barrier: each rank sends its whole input as packets into every other's inbox, and adds what
// comes (TensorRT-LLM's and NCCL's one-shot LL).  The fewest steps there are, for the most bytes; for small messages.
//
// Buffers.  An inbox in each window: two halves of `room` packets for each source rank, used by turns of the call's
// parity.  A rank can fill a half again only after it has everyone's packets of the call in between, which they sent
// after reading that half.  Nothing else may ever be written there.
//
// Who waits for whom: each thread for the packets that it reads.  In place too: a thread sends an element before it
// stores the result there.
//
// Launch: as kernels/ring.cu.  Launched by collbench/implementations/one_shot_ll.py.
#include "packets.cuh"

// `bytes` in the array, at most room * 8; `fifo`: where the inbox starts in the windows, in bytes behind the flags.
extern "C" __global__ void __launch_bounds__(512, 1)
    one_shot_ll(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) room, PARAMETER(u64) bytes) {
  const Call call(world);
  const unsigned ranks = world.ranks, rank = call.rank, flag = 2 * call.number + 1;
  const unsigned char* const source = world.send[rank];
  unsigned char* const target = world.receive[rank];
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
    auto input = [&](unsigned from) {
      return from == rank ? load_payload(source, i * PAYLOAD, bytes)
                          : receive_packets(&inbox(rank, from)[i], flag, world, &call.mine->error.word[0]);
    };
    u64 sum = input(0);
    for (unsigned from = 1; from < ranks; from++) sum = combine_payload(sum, input(from));
    store_payload(target, i * PAYLOAD, bytes, finish_payload(sum, ranks));
  }
  stamp(world, Phase::ADDED);
  call.leave();
}
