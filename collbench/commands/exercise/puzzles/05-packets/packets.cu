// Packets: an all-reduce without a barrier, with flags inside the data.
//
//   a packet, 64 bits, stored at once:   | flag, 32 bits | data, 32 bits |
//   a pair of packets carries 8 bytes:   | flag | data 0..3 |   | flag | data 4..7 |
//
// Every rank sends its input as packets into an inbox in every other rank's window, and adds the packets it receives.
// Fill in the four places marked YOUR CODE; README.md lists the given functions.
#include "packets.cuh"

const u64 FIFO = 1 << 20;  // bytes for inboxes in every window, as in packets.toml

// Sends the data with the flag in both packets: store_packets(to, first, second) stores two words of 64 bits.
__device__ inline void send(Packets* to, u64 data, unsigned flag) {
  // YOUR CODE (1): make the two words, and store them.
}

// Returns the data with this flag: load_packets(from, first, second) loads both words, which arrive one by one.
__device__ inline u64 receive(const Packets* from, unsigned flag, const World& world, Flag* error) {
  Patience patience(world, error, from);  // `patience.again()` returns whether to poll again
  u64 first = 0, second = 0;
  load_packets(from, first, second);
  // YOUR CODE (2): poll until both have arrived.
  return 0;  // YOUR CODE (2): the data of both
}

extern "C" __global__ void __launch_bounds__(512, 1)
    packets(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) count) {
  const Call call(world);
  const unsigned rank = call.rank, ranks = world.ranks;
  const unsigned char* const input = world.send[rank];
  unsigned char* const result = world.receive[rank];
  Flag* const error = &call.mine->error.word[0];
  const u64 pairs = (count * sizeof(T) + PAYLOAD - 1) / PAYLOAD;  // of packets, for the whole input
  const u64 room = FIFO / sizeof(Packets) / (2 * ranks);          // for pairs, in each of 2 * ranks inboxes
  const u64 thread = call.block * blockDim.x + threadIdx.x, threads = world.blocks * blockDim.x;

  unsigned round = 0;  // more than one only for arrays that do not fit the inboxes
  for (u64 first = 0; first < pairs; first += room, round++) {
    if (round) call.meet(round);
    const u64 end = pairs - first < room ? pairs : first + room;
    const unsigned number = call.number + round;  // new in every call and every round

    // YOUR CODE (3): a flag that was never used before (memory is zero at first), and the half of the inboxes,
    // 0 or 1.
    const unsigned flag = 0, half = 0;

    // The place in the window of rank `at` for pair i of rank `from`.
    auto inbox = [&](unsigned at, unsigned from, u64 i) {
      return (Packets*)(world.fifo_of(at) + fifo) + (half * ranks + from) * room + (i - first);
    };
    for (u64 i = first + thread; i < end; i += threads)
      for (unsigned peer = 0; peer < ranks; peer++)
        if (peer != rank) send(inbox(peer, rank, i), load_payload(input, i * PAYLOAD, count * sizeof(T)), flag);
    for (u64 i = first + thread; i < end; i += threads) {
      u64 sum = 0;
      // YOUR CODE (4): the sum of all ranks' inputs, in the order of the ranks: a = combine_payload(a, b) adds.
      store_payload(result, i * PAYLOAD, count * sizeof(T), finish_payload(sum, ranks));
    }
  }
  call.leave(round);
}
