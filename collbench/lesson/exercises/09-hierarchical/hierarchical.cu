// Exercise 9, hierarchical: two nodes of two ranks.  Inside a node memory is shared; between nodes is only a wire.
//
//        node 0: rank 0 -- rank 1          the mate of rank 0 is rank 1, in the same node
//                  |         |             the twin of rank 0 is rank 2, in the other node
//        node 1: rank 2 -- rank 3
//
// A rank may read its mate's input and write its mate's result.  Of its twin it reaches a box alone, in which it puts
// data, and a flag.  Arrays of the other node have no address here: they are null pointers.  Two ranks are one node.
#include "flags.cuh"

const u64 PIECE = 256;  // elements that a box has room for

struct Member {
  const World& world;
  const unsigned rank, mate, twin;
  const bool two_nodes;
  Flag *came, *twin_came, *error;  // how many pieces have come into my boxes; the same of my twin; for await
  unsigned* own;                   // counter of mine that lasts from call to call
  const unsigned half;             // of the array, that this rank adds up: 0 or 1
  T *inbox, *outbox;               // two boxes of mine, PIECE elements each, and two of my twin

  __device__ Member(const Call& call, u64 fifo)
      : world(call.world), rank(call.rank), mate(rank ^ 1), twin((rank + 2) % world.ranks), two_nodes(twin != rank),
        half(rank % 2) {
    Channel& channel = call.mine->channel[call.block];
    came = channel.arrived.word, own = channel.own.word, error = call.mine->error.word;
    twin_came = world.window_of(twin)->channel[call.block].arrived.word;
    inbox = (T*)(world.fifo_of(rank) + fifo) + call.block * 2 * PIECE;
    outbox = (T*)(world.fifo_of(twin) + fifo) + call.block * 2 * PIECE;
  }
  __device__ const T* input_of(unsigned of) const { return (const T*)world.send[of]; }
  __device__ T* result_of(unsigned of) const { return (T*)world.receive[of]; }
};

// Given: wait for the mate.  What either did before, the other sees afterwards.  Two meetings of a call: 0 and 1.
__device__ inline void meet_mate(const Call& call, const Member& me, unsigned number) {
  publish(call.met(me.mate, me.rank), 4 * call.number + number);
  await(call.met(me.rank, me.mate), 4 * call.number + number, me.world, me.error);
}

// `length` elements of this rank's half, from element `at` of the array on; piece number `number`, counted from 0.
//   publish(me.twin_came, n)                          tell the twin that n pieces have come into its boxes
//   await(me.came, n, me.world, me.error)       wait until n pieces have come into my boxes
__device__ inline void add_piece(const Member& me, u64 at, u64 length, unsigned number) {
  const T *input = me.input_of(me.rank) + at, *mates = me.input_of(me.mate) + at;
  T *result = me.result_of(me.rank) + at, *mates_result = me.result_of(me.mate) + at;
  // YOUR CODE
  // Add inside the node; exchange with the twin, if there are two nodes; write the sum to both results of the node.
  // Each thread takes elements threadIdx.x, threadIdx.x + blockDim.x, ... of the piece.
  (void)input, (void)mates, (void)result, (void)mates_result;  // remove this line: it keeps the compiler quiet
}

extern "C" __global__ void __launch_bounds__(512, 1)
    hierarchical(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) count) {
  const Call call(world);
  const Member me(call, fifo);
  unsigned number = me.own[0];
  const u64 middle = count / 2, begin = me.half ? middle : 0, end = me.half ? count : middle;
  const u64 longer = count - middle;  // both halves take as many rounds, so that blocks of twins and mates go together

  // YOUR CODE: what must be waited for before the first piece?
  for (u64 at = call.block * PIECE; at < longer; at += world.blocks * PIECE) {
    const u64 first = begin + at < end ? begin + at : end, length = end - first < PIECE ? end - first : PIECE;
    add_piece(me, first, length, number++);
  }
  // YOUR CODE: and after the last?

  __syncthreads();
  if (threadIdx.x == 0) me.own[0] = number;  // the next call goes on counting here
  call.leave();
}
