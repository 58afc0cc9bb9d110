// The stress check of a CPU's rank: kernels/check.cu in a loop of calls.
#pragma once

// A block that is received: where it starts in the receive buffer, whose it is, and where it starts in that one's input.
struct Piece {
  u64 received, sent;
  int source;
  unsigned reserved;
};

// A rank's part in the stress check: calls back to back, between which ranks meet only as far as the operation has them
// meet.  A caller's next actions come at once: on return the input is spoilt and the result copied, in either order.
struct Stress {
  void (*operation)(void** arguments, unsigned blocks, unsigned threads, unsigned launches);
  void** arguments;
  T *send, *receive;
  u64 send_blocks;
  const Piece* pieces;
  u64 piece_count;
  const u64* stalls;       // nanoseconds by which this rank is late, call by call
  Probe::Stretch* places;  // room for those of one call
  T* copies;               // room for the results of `kept` calls
  Verdict* verdicts;       // one for each piece
  Probe probe;
  Recipe how;              // of the first call; every call has the next seed
  Wire wire;               // that results are bounded by, if `bounded`
  unsigned rank, calls, kept, ulps, in_place, bounded;

  unsigned seed(unsigned call) const { return how.seed + call; }
  Recipe recipe(unsigned call) const { return Recipe{seed(call), how.ranks, how.bits, how.stride, how.grades}; }

  T* copy_of(unsigned call, u64 piece) const {
    return copies + (call % kept * piece_count + piece) * probe.stretches() * probe.length;
  }

  template <class Visit> void visit(Visit visit) const {
    for (u64 number = 0; number < probe.stretches(); number++)
      visit(places[number].first, places[number].count, number * probe.length);
  }

  void spoil(T* block, unsigned pattern) const {
    const T spoilt = from_bits(Bits((u64)pattern << 32 | pattern));
    visit([&](u64 first, unsigned count, u64) {
      for (unsigned i = 0; i < count; i++) block[first + i] = spoilt;
    });
  }

  void enter(unsigned call) const {
    for (u64 number = 0; number < probe.stretches(); number++) places[number] = probe.stretch(number, seed(call));
    ::stall(stalls[call]);
    for (u64 piece = 0; piece < piece_count; piece++) spoil(receive + pieces[piece].received, OUTPUT);
    for (u64 block = 0; block < send_blocks; block++)
      visit([&](u64 first, unsigned count, u64) {
        Tile<SHORT> tile(recipe(call), block * probe.block + first);
        tile.input(recipe(call), rank);
        for (unsigned i = 0; i < count; i++) send[block * probe.block + first + i] = tile.value[i];
      });
  }

  void spoil_input() const {
    for (u64 block = 0; block < send_blocks; block++) spoil(send + block * probe.block, INPUT);
  }

  void copy_result(unsigned call) const {
    for (u64 piece = 0; piece < piece_count; piece++) {
      const T* const from = receive + pieces[piece].received;
      T* const to = copy_of(call, piece);
      visit([&](u64 first, unsigned count, u64 place) {
        for (unsigned i = 0; i < count; i++) to[place + i] = from[first + i];
      });
    }
  }

  void judge(unsigned call) const {
    for (u64 piece = 0; piece < piece_count; piece++) {
      Finding finding;
      probe.visit(seed(call), [&](u64 first, unsigned count, u64 place) {
        const T* const got = copy_of(call, piece) + place;
        if (bounded) return look_within(finding, got, recipe(call), wire, first, count, probe.block, call);
        Tile<SHORT> tile(recipe(call), pieces[piece].sent + first);
        tile.wanted(recipe(call), pieces[piece].source);
        finding.look(got, tile, count, (u64)call << CALL_BITS | first, ulps);
      });
      finding.report(&verdicts[piece]);
    }
  }

  void run() const {
    for (unsigned call = 0, judged = 0; call < calls; call++) {
      enter(call);
      operation(arguments, 1, 1, 1);
      if (in_place || call & 1) copy_result(call), spoil_input();
      else spoil_input(), copy_result(call);
      if (call + 1 - judged == kept || call + 1 == calls)
        while (judged <= call) judge(judged++);
    }
  }
};

extern "C" void stress(const Stress* check) { check->run(); }

// So many operations one by one, by a loop that is not theirs but is called as theirs is: the first of `what` is the
// operation, the second points to its arguments.
extern "C" void repeat(void** what, unsigned, unsigned, unsigned times) {
  const auto operation = (void (*)(void**, unsigned, unsigned, unsigned))what[0];
  while (times--) operation((void**)what[1], 1, 1, 1);
}
