// The kernels of the harness in streams.cpp, with stalls in them: those named by -DWITH_..., which a seeded bug changes,
// or -DUSER_KERNEL's, which a user wrote.
// OTHERS: what a ring does besides all-reduce.  Entries are static, so that none is compiled that the table leaves out.
#include "streams.hpp"

inline void stalling_barrier() {
  stall(BARRIER);
  __syncthreads();
  stall(BARRIER);
}
#define __syncthreads stalling_barrier

template <class E> inline void plain_store(E* target, const E& value) { *target = value; }
#define stream plain_store  // ThreadSanitizer does not see the intrinsics of the real one

inline void patiently(unsigned long long tries, unsigned) { give_way(tries); }
#define relax patiently

#include "packets.cuh"
#define receive_packets(...) (stall(RECEIVE), receive_packets(__VA_ARGS__))

#if defined(USER_KERNEL)  // each of its stores and looks may come late
#define store_release(...) (::stall(::BARRIER), store_release(__VA_ARGS__))
#define store_relaxed(...) (::stall(::BARRIER), store_relaxed(__VA_ARGS__))
#define store_packets(...) (::stall(::PACKETS), store_packets(__VA_ARGS__))
#define load_acquire(flag) (::look(flag), load_acquire(flag))
#define load_relaxed(flag) (::look(flag), load_relaxed(flag))
#define load_packets(from, ...) (::look(from), load_packets(from, __VA_ARGS__))
namespace user {
#include USER_KERNEL
}
#endif
#if defined(WITH_RING)
namespace flags {
#include "ring.cu"
}
#endif
#if defined(WITH_PIPELINED)
#undef SLOTS
#undef IN_FLIGHT
#define SLOTS 2  // the fewest that any device gets: with as many as ranks, most waits for room would be idle
#define IN_FLIGHT 2
#define MERGED
namespace pipelined {
#include "ring.cu"
}
#undef IN_FLIGHT
#endif
#if defined(WITH_RING_LL)
namespace packets {
#include "ring_ll.cu"
}
#endif
#if defined(WITH_DIRECT)
#include "direct.cu"
#endif
#if defined(WITH_ONE_SHOT_LL)
#define TOGETHER 3  // not all ranks at once, nor one by one
#include "one_shot_ll.cu"
#endif
#if defined(WITH_MULTIMEM)
#include "multimem.cu"
#endif
#if defined(WITH_NARROW)
#define WIRE Bfloat  // sums of few small numbers pass as they are
#define TEAM 8       // the form of a GPU
namespace wires {
#include "narrow.cu"
}
#endif

static_assert(sizeof(Packets) == PAIR_BYTES && PAYLOAD == PAIR_DATA, "as streams.hpp has it");

#define RUN [](const World& world, const Arguments& call)
const Kernel KERNELS[] = {
#if defined(USER_KERNEL)
    {"user-kernel", USER_COLLECTIVE, RUN { (void)call, user::USER_ENTRY(world USER_ARGUMENTS); }, USER_IN_PLACE},
#endif
#if defined(WITH_RING)
    {"ring-flags", ALLREDUCE, RUN {
       flags::ring_allreduce(world, call.flags_fifo, call.slot, call.slot, call.count, call.chunk); }},
#if defined(WITH_OTHERS)
    {"ring-flags-broadcast", BROADCAST, RUN {
       flags::ring_broadcast(world, call.flags_fifo, call.slot, call.slot, call.count, call.root); }},
    {"ring-flags-allgather", ALLGATHER, RUN {
       flags::ring_allgather(world, call.flags_fifo, call.slot, call.slot, call.count); }},
    {"ring-flags-reducescatter", REDUCESCATTER, RUN {
       flags::ring_reducescatter(world, call.flags_fifo, call.slot, call.slot, call.count); }},
#endif
#endif
#if defined(WITH_PIPELINED)
    {"ring-pipelined", ALLREDUCE, RUN {
       pipelined::ring_allreduce(world, call.pipelined_fifo, call.slot, call.piece, call.count, call.chunk); }},
#if defined(WITH_OTHERS)
    {"ring-pipelined-broadcast", BROADCAST, RUN {
       pipelined::ring_broadcast(world, call.pipelined_fifo, call.slot, call.piece, call.count, call.root); }},
    {"ring-pipelined-allgather", ALLGATHER, RUN {
       pipelined::ring_allgather(world, call.pipelined_fifo, call.slot, call.piece, call.count); }},
    {"ring-pipelined-reducescatter", REDUCESCATTER, RUN {
       pipelined::ring_reducescatter(world, call.pipelined_fifo, call.slot, call.piece, call.count); }},
#endif
#endif
#if defined(WITH_RING_LL)
    {"ring-ll", ALLREDUCE, RUN {
       packets::ring_ll_allreduce(world, call.ring_ll_fifo, call.slot_bytes, call.slots,
                                  call.piece * sizeof(T), call.count * sizeof(T),
                                  call.chunk * sizeof(T)); }},
#endif
#if defined(WITH_DIRECT)
    {"one-shot", ALLREDUCE, RUN { one_shot(world, call.count); }, false},
    {"two-shot", ALLREDUCE, RUN { two_shot(world, call.count, call.chunk); }},
    {"parameter-server", ALLREDUCE, RUN { parameter_server(world, call.count); }},
#endif
#if defined(WITH_ONE_SHOT_LL)
    {"one-shot-ll", ALLREDUCE, RUN {
       one_shot_ll(world, call.one_shot_ll_fifo, call.room, call.count * sizeof(T)); }},
#endif
#if defined(WITH_MULTIMEM)
    {"nvls", ALLREDUCE, RUN {  // no addresses are multicast; those of the first rank are aligned as they would be
       nvls(world, u64(world.send[0]), u64(world.receive[0]), call.count, call.chunk); }},
#endif
#if defined(WITH_NARROW)
    {"narrow", ALLREDUCE, RUN {
       const u64 most = call.box / (wires::GROUP * sizeof(wires::Wire::Code) + sizeof(wires::Wire::Side));
       wires::narrow_allreduce(world, call.narrow_fifo, call.box, most, call.count, 0); }},
#endif
    {nullptr, ALLREDUCE, nullptr},
};
