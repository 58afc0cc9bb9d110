// Packets: data and flag in one store, so that a reader of the flag has the data.
//
// A packet is 8 bytes, half data and half flag, stored as one 64-bit word: PTX promises that each *scalar* arrives
// whole, so two packets may share a v2.b64 access, while a v4.u32 could bring the flag before the data.  The price is
// twice the bytes (NCCL's LL protocol).
//
// Flags are odd, since memory starts as zero, and a packet is reused only for a later flag.
#pragma once
#include "flags.cuh"

struct Packets {
  u64 word[2];  // low half data, high half flag
};

const unsigned PAYLOAD = 8;  // bytes of data in two packets

#if defined(__CUDACC__)
__device__ inline void store_packets(Packets* to, u64 first, u64 second) {
  asm volatile("st.relaxed." SCOPE ".v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second) : "memory");
}
__device__ inline void load_packets(const Packets* from, u64& first, u64& second) {
  asm volatile("ld.relaxed." SCOPE ".v2.b64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(from) : "memory");
}
#else
inline void store_packets(Packets* to, u64 first, u64 second) {
  __atomic_store_n(&to->word[0], first, __ATOMIC_RELAXED);
  __atomic_store_n(&to->word[1], second, __ATOMIC_RELAXED);
}
inline void load_packets(const Packets* from, u64& first, u64& second) {
  first = __atomic_load_n(&from->word[0], __ATOMIC_RELAXED);
  second = __atomic_load_n(&from->word[1], __ATOMIC_RELAXED);
}
#endif

__device__ inline void send_packets(Packets* to, u64 data, unsigned flag) {
  const u64 high = (u64)flag << 32;
  store_packets(to, high | (data & 0xffffffffULL), high | data >> 32);
}

// The 8 bytes of data behind this flag: of two packets as a look found them, or waited for.  So looks at several places
// can be on their way together.  Both conditions are written with || for the sake of CPUs: of !(... && ...) GCC makes a
// loop that takes a third longer.
__device__ inline u64 receive_packets(u64 first, u64 second, const Packets* from, unsigned flag, const World& world,
                                      Flag* error) {
  if (first >> 32 != flag || second >> 32 != flag) {
    stamp(world, Phase::WORKED);
    Patience patience(world, error, from);
    do load_packets(from, first, second);
    while ((first >> 32 != flag || second >> 32 != flag) && patience.again());
    stamp(world, Phase::WAITED);
  }
  return (first & 0xffffffffULL) | second << 32;
}

__device__ inline u64 receive_packets(const Packets* from, unsigned flag, const World& world, Flag* error) {
  u64 first, second;
  load_packets(from, first, second);
  return receive_packets(first, second, from, flag, world, error);
}

// 8 bytes of elements, as many as fit, and how they combine.
union Payload {
  u64 bits;
  T lane[PAYLOAD / sizeof(T)];
};

// 8 bytes from `source` on; beyond its end, at `bytes`, come zeros.
__device__ inline u64 load_payload(const unsigned char* source, u64 at, u64 bytes) {
  if (at + PAYLOAD <= bytes && (u64)(source + at) % PAYLOAD == 0) return *(const u64*)(source + at);
  Payload x;
  x.bits = 0;
  for (unsigned i = 0; i < PAYLOAD / sizeof(T); i++)  // to a fixed end: only then is x kept in registers
    if (at + i * sizeof(T) < bytes) x.lane[i] = ((const T*)(source + at))[i];
  return x.bits;
}

__device__ inline void store_payload(unsigned char* target, u64 at, u64 bytes, u64 bits) {
  if (at + PAYLOAD <= bytes && (u64)(target + at) % PAYLOAD == 0) {
    *(u64*)(target + at) = bits;
    return;
  }
  Payload x;
  x.bits = bits;
  for (unsigned i = 0; i < PAYLOAD / sizeof(T); i++)
    if (at + i * sizeof(T) < bytes) ((T*)(target + at))[i] = x.lane[i];
}

__device__ inline u64 combine_payload(u64 a, u64 b) {
  Payload x, y;
  x.bits = a, y.bits = b;
  for (unsigned i = 0; i < PAYLOAD / sizeof(T); i++) x.lane[i] = combine(x.lane[i], y.lane[i]);
  return x.bits;
}

__device__ inline u64 finish_payload(u64 bits, unsigned ranks) {
  Payload x;
  x.bits = bits;
  for (unsigned i = 0; i < PAYLOAD / sizeof(T); i++) x.lane[i] = finish(x.lane[i], ranks);
  return x.bits;
}
