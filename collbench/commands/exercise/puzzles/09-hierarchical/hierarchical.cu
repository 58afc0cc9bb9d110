// Exercise 9, hierarchical: two nodes of two ranks.  Ranks of a node share memory; nodes share only a network.
//
//        node 0: rank 0 -- rank 1          the mate of rank 0 is rank 1, in the same node
//                  |         |             the twin of rank 0 is rank 2, in the other node
//        node 1: rank 2 -- rank 3
//
// A rank may read its mate's input and write its mate's result.  At its twin it can only write a flag and two boxes.
// Arrays of the other node have no address here: they are null pointers.  Two ranks are one node.
#include "flags.cuh"

const u64 PIECE = 256;  // elements of a box

struct Member {
  const Call& call;
  const unsigned mate, twin;
  const bool two_nodes;
  const T* input;    // mine
  const T* mates;    // my mate's input
  T* result;         // mine
  T* mates_result;
  T* inbox;          // two boxes of mine of PIECE elements each, which my twin fills
  T* outbox;         // two boxes of my twin, which I fill

  __device__ Member(const Call& call, u64 fifo)
      : call(call), mate(call.rank ^ 1), twin((call.rank + 2) % call.world.ranks), two_nodes(twin != call.rank) {
    const World& world = call.world;
    input = (const T*)world.send[call.rank], mates = (const T*)world.send[mate];
    result = (T*)world.receive[call.rank], mates_result = (T*)world.receive[mate];
    inbox = (T*)(world.fifo_of(call.rank) + fifo) + call.block * 2 * PIECE;
    outbox = (T*)(world.fifo_of(twin) + fifo) + call.block * 2 * PIECE;
  }

  // Given.  tell: publish that my threads' earlier work is done.  await: wait until a rank has done so.  Numbers grow.
  __device__ void tell(unsigned whom, unsigned number) const { publish(call.met(whom, call.rank), number); }
  __device__ void await_from(unsigned whom, unsigned number) const {
    await(call.met(call.rank, whom), number, call.world, call.mine->error.word);
  }

  // Given: wait for the mate, and see its earlier writes.  Two meetings in a call: 0 and 1.
  __device__ void meet_mate(unsigned place) const {
    tell(mate, 4 * call.number + place);
    await_from(mate, 4 * call.number + place);
  }

  // Given: tell my twin that piece `number` is in its box; wait until my twin's piece `number` is in mine.
  __device__ void tell_twin(unsigned number) const { tell(twin, 4 * number); }
  __device__ void await_twin(unsigned number) const { await_from(twin, 4 * number); }

  // Elements begin, begin + 1, ... end - 1 of the array; `number` is one higher for each piece, also from call to call.
  __device__ void add_piece(u64 begin, u64 end, unsigned number) const {
    // YOUR CODE
    // Add inside the node; exchange with the twin, if there are two nodes; write the sums to both results of the node.
    // A thread takes the elements begin + threadIdx.x, begin + threadIdx.x + blockDim.x, ...
  }
};

__device__ inline u64 smaller(u64 a, u64 b) { return a < b ? a : b; }

extern "C" __global__ void __launch_bounds__(512, 1)
    hierarchical(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) count) {
  const Call call(world);
  const Member me(call, fifo);

  // The first rank of a node adds the first half of the array piece by piece, the second rank the second half.
  const u64 middle = count / 2, first = call.rank % 2 ? middle : 0, last = call.rank % 2 ? count : middle;
  const unsigned rounds = unsigned((count - middle) / (world.blocks * PIECE)) + 1;  // the same for all ranks and blocks

  // YOUR CODE: the wait before the first piece
  for (unsigned round = 0; round < rounds; round++) {
    const u64 begin = smaller(first + (round * world.blocks + call.block) * PIECE, last);
    me.add_piece(begin, smaller(begin + PIECE, last), call.number + round);
  }
  // YOUR CODE: the wait after the last piece

  call.leave(rounds);
}
