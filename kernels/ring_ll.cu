// Ring all-reduce over packets: the program of kernels/ring.cu, with the flag inside the data.
//
// Buffers.  A FIFO of `slots` pieces per block in each window, a piece being at most `slot` bytes of data in twice as many
// bytes of packets.  Nothing else may ever be written there, or it could pass for a flag.
//
// Waits: each thread for the packets that it reads, and for nothing else.  No word says that a slot is
// free: with slots >= ranks, the piece that I have just taken went round the ring after the next rank had taken the one
// whose slot I am about to fill.
//
// Launch: as kernels/ring.cu.  Launched by collbench/algorithms/ring_ll.py.
#include "packets.cuh"

enum Verb { TAKE = 1, ADD = 2, KEEP = 4, SEND = 8 };

struct PacketRing {
  const World& world;
  Channel& channel;
  Flag* const error;
  Packets *inbox, *outbox;
  const unsigned char* const source;
  unsigned char* const target;
  const u64 bytes, slot;
  const unsigned slots;
  unsigned sent, taken;

  __device__ PacketRing(const World& world, unsigned rank, u64 fifo, u64 slot, unsigned slots, u64 bytes)
      : world(world),
        channel(world.window_of(rank)->channel[world.block()]),
        error(&world.window_of(rank)->error.word[0]),
        inbox((Packets*)(world.fifo_of(rank) + fifo) + world.block() * slots * (slot / PAYLOAD)),
        outbox((Packets*)(world.fifo_of((rank + 1) % world.ranks) + fifo) + world.block() * slots * (slot / PAYLOAD)),
        source(world.send[rank]),
        target(world.receive[rank]),
        bytes(bytes),
        slot(slot),
        slots(slots),
        sent(channel.own.word[2]),
        taken(channel.own.word[3]) {
    begin_trace(world);
  }

  // `first`: byte of the array that the piece starts at; a piece may reach beyond the array, and then carries zeros.
  template <int VERBS>
  __device__ void hop(u64 first, u64 length) {
    const Packets* const in = inbox + taken % slots * (slot / PAYLOAD);
    Packets* const out = outbox + sent % slots * (slot / PAYLOAD);
    const unsigned came = 2 * taken + 1, goes = 2 * sent + 1;
    for (u64 i = threadIdx.x; i * PAYLOAD < length; i += blockDim.x) {
      const u64 at = first + i * PAYLOAD;
      u64 x = VERBS & TAKE ? receive_packets(&in[i], came, world, error) : load_payload(source, at, bytes);
      if (VERBS & ADD) x = combine_payload(x, load_payload(source, at, bytes));
      if ((VERBS & ADD) && (VERBS & KEEP)) x = finish_payload(x, world.ranks);
      if (VERBS & KEEP) store_payload(target, at, bytes, x);
      if (VERBS & SEND) send_packets(&out[i], x, goes);
    }
    stamp(world, VERBS & ADD ? Phase::ADDED : Phase::MOVED);
    if (VERBS & SEND) sent++;
    if (VERBS & TAKE) taken++;
    __syncthreads();  // a slot that all threads of this block have emptied may be filled by what this hop causes
  }

  __device__ void keep_own() const {
    const u64 threads = (u64)world.blocks * blockDim.x, own = (u64)world.block() * blockDim.x + threadIdx.x;
    for (u64 at = own * PAYLOAD; at < bytes; at += threads * PAYLOAD)
      store_payload(target, at, bytes, load_payload(source, at, bytes));
  }

  __device__ void remember() {
    end_trace(world);
    __syncthreads();  // a block with nothing to do has no other barrier, and its threads must have read the old numbers
    if (threadIdx.x) return;
    channel.own.word[2] = sent;
    channel.own.word[3] = taken;
  }
};

// All lengths in bytes: `bytes` in the array, `chunk` in each rank's chunk, `slot` of data in a FIFO slot, of which a piece
// fills `piece`; the last three are multiples of 8.
extern "C" __global__ void __launch_bounds__(512, 1)
    ring_ll_allreduce(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) slot, PARAMETER(unsigned) slots,
                      PARAMETER(u64) piece, PARAMETER(u64) bytes, PARAMETER(u64) chunk) {
  const unsigned ranks = world.ranks, rank = world.rank();
  PacketRing ring(world, rank, fifo, slot, slots, bytes);
  if (ranks == 1) {  // nobody to send to
    ring.keep_own();
    return;
  }
  for (u64 lap = world.block() * piece; lap < chunk; lap += world.blocks * piece) {
    const u64 length = chunk - lap < piece ? chunk - lap : piece;
    auto part = [&](unsigned index) { return index % ranks * chunk + lap; };
    ring.hop<SEND>(part(rank + ranks - 1), length);
    for (unsigned step = 2; step < ranks; step++) ring.hop<TAKE | ADD | SEND>(part(rank + ranks - step), length);
    ring.hop<TAKE | ADD | KEEP | SEND>(part(rank), length);
    for (unsigned step = 1; step + 1 < ranks; step++) ring.hop<TAKE | KEEP | SEND>(part(rank + ranks - step), length);
    ring.hop<TAKE | KEEP>(part(rank + 1), length);
  }
  ring.remember();
}
