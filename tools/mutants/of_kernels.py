"""Faults of the kernels, seen on CPUs."""

from tools.mutants.trial import Mutant, Trial

ONE_SHOT, TWO_SHOT = Trial("one-shot"), Trial("two-shot")
SERVER, LL = Trial("parameter-server"), Trial("one-shot-ll")
RING, PIPELINED, RING_LL = Trial("ring-flags"), Trial("ring-pipelined"), Trial("ring-ll")
FOUR = {"ranks": 4}

_DIRECT, _FLAGS, _RING, _PRELUDE = "kernels/direct.cu", "kernels/flags.cuh", "kernels/ring.cu", "kernels/prelude.cuh"
_PACKETS, _LL, _RING_LL = "kernels/packets.cuh", "kernels/one_shot_ll.cu", "kernels/ring_ll.cu"
_HOST = "kernels/host/cuda.hpp"

_ONE_SHOT_END = "  add_part(route(call, 0, call.rank, 1), count);\n  stamp_block(world, Phase::ADDED);\n"
_TWO_SHOT_START = "  call.meet(0);\n  if (first < count)"
_SHARD = "count - first < chunk ? count - first : chunk);\n"
_TWO_SHOT_END = f"{_SHARD}  stamp_block(world, Phase::ADDED);\n"
_SERVER = "  if (call.rank == 0) add_part(route(call, 0, 0, world.ranks), count);\n"
_SERVER_END = f"{_SERVER}  stamp_block(world, Phase::ADDED);\n"
_LOOK = "      look_until(met(rank, i), value, world, &mine->error.word[0]);\n"
_MEET = "    for (unsigned i = threadIdx.x; i < world.ranks; i += blockDim.x) store_release(met(i, rank), value);\n"
_WAIT = "  for (Patience patience(world, error, flag); load_acquire(flag) - number >= LEAD && patience.again();) {}\n"
_SUM = "  return E(W(a) + W(b));\n"
_TAKEN = "    if (VERBS & TAKE) await(arrived, taken + 1, world, error);\n"
_ROOM = "    if (VERBS & SEND) await(room, free, world, error);\n"
_BOTH = "return await(arrived, taken + 1, room, free, world, error);"
_STALE = "    while ((first >> 32 != flag || second >> 32 != flag) && patience.again());\n"
_TAIL = "    move<VERBS, 1>(in + tail, source + tail, target + tail, out + tail, count - tail, world.ranks);\n"
_LOOP = "  for (unsigned count = 0; count < launches; count++) call(kernel, arguments);\n#endif"
_EVERY = "  if (threadIdx.x == 0) look_until(flag, number, world, error);\n"

MEETINGS = (
    Mutant("one-shot without its waits", _FLAGS, ((_WAIT, ""),), ONE_SHOT),
    Mutant("two-shot without its waits", _FLAGS, ((_WAIT, ""),), TWO_SHOT),
    Mutant("meetings that wait for nobody", _FLAGS, ((_LOOK, "      ;\n"),), SERVER),
    Mutant(
        "one-shot without the first meeting",
        _DIRECT,
        (("  call.meet(0);\n  add_part(route(call, 0, call.rank", "  add_part(route(call, 0, call.rank"),),
        ONE_SHOT,
    ),
    Mutant(
        "one-shot without the last meeting",
        _DIRECT,
        ((f"{_ONE_SHOT_END}  call.meet(1);\n", _ONE_SHOT_END),),
        ONE_SHOT,
    ),
    Mutant(
        "two-shot without the first meeting",
        _DIRECT,
        ((_TWO_SHOT_START, "  if (first < count)"),),
        TWO_SHOT,
    ),
    Mutant(
        "two-shot without the last meeting",
        _DIRECT,
        ((f"{_TWO_SHOT_END}  call.meet(1);\n", _TWO_SHOT_END),),
        TWO_SHOT,
    ),
    Mutant(
        "two-shot without the last meeting, one element",
        _DIRECT,
        ((f"{_TWO_SHOT_END}  call.meet(1);\n", _TWO_SHOT_END),),
        Trial("two-shot", size="4"),
    ),
    Mutant(
        "two-shot without the last meeting, large",
        _DIRECT,
        ((f"{_TWO_SHOT_END}  call.meet(1);\n", _TWO_SHOT_END),),
        Trial("two-shot", size="4M"),
    ),
    Mutant(
        "one-shot without the last meeting, large",
        _DIRECT,
        ((f"{_ONE_SHOT_END}  call.meet(1);\n", _ONE_SHOT_END),),
        Trial("one-shot", size="4M"),
    ),
    Mutant(
        "the server without the first meeting",
        _DIRECT,
        ((f"  call.meet(0);\n{_SERVER}", _SERVER),),
        SERVER,
    ),
    Mutant(
        "the server without the last meeting",
        _DIRECT,
        ((f"{_SERVER_END}  call.meet(1);\n", _SERVER_END),),
        SERVER,
    ),
    Mutant("one number for both meetings", _FLAGS, (("4 * number + place", "4 * number"),), ONE_SHOT),
    Mutant("meetings of all calls with one number", _FLAGS, (("4 * number + place", "4 + place"),), TWO_SHOT),
    Mutant(
        "a meeting that waits for the last one", _FLAGS, ((_LOOK, _LOOK.replace("value,", "value - 4,")),), TWO_SHOT
    ),
    Mutant(
        "calls that are not counted", _FLAGS, (("    mine->calls.word[0] = number + numbers - 1;\n", ""),), ONE_SHOT
    ),
    Mutant(
        "a meeting without the last rank",
        _FLAGS,
        ((_LOOK, _LOOK.replace("met(rank, i)", "met(rank, i % (world.ranks - 1))")),),
        Trial("one-shot", **FOUR),
    ),
    Mutant(
        "a meeting that only half of the ranks wait at",
        _FLAGS,
        ((_LOOK, _LOOK.replace("look_until(", "if (rank % 2 == 0) look_until(")),),
        Trial("two-shot", **FOUR),
    ),
    Mutant("a meeting every other call", _FLAGS, ((_LOOK, "      if (number % 2) " + _LOOK.lstrip()),), ONE_SHOT),
    Mutant("waits that look once", _FLAGS, ((_WAIT, "  load_acquire(flag);\n"),), TWO_SHOT),
)

ARITHMETIC = (
    Mutant("a sum that is one off", _PRELUDE, ((_SUM, "  return E(W(a) + W(b) + W(1));\n"),), RING),
    Mutant("a sum that forgets its first part", _PRELUDE, ((_SUM, "  return b;\n"),), ONE_SHOT),
    Mutant("a difference for a sum", _PRELUDE, ((_SUM, "  return E(W(a) - W(b));\n"),), TWO_SHOT),
    Mutant("a largest for a sum", _PRELUDE, ((_SUM, "  return a < b ? b : a;\n"),), LL),
    Mutant(
        "a division by one rank too many",
        _PRELUDE,
        (("if (fraction) return x / E(ranks);", "if (fraction) return x / E(ranks + 1);"),),
        Trial("two-shot", redop="avg"),
    ),
    Mutant(
        "an average that is not divided",
        _PRELUDE,
        (("REDOP == AVG ? narrow(divide(widen(x), ranks), T()) : x", "x"),),
        Trial("ring-flags", redop="avg"),
    ),
    Mutant(
        "an average of integers that is not divided",
        _PRELUDE,
        (("E((int)x / (int)ranks)", "x"),),
        Trial("one-shot", redop="avg", dtype="int32"),
    ),
    Mutant(
        "an average that is divided at every step",
        _RING,
        (
            (
                "if (VERBS & ADD) x[k] = combine(x[k], own[k]);",
                "if (VERBS & ADD) x[k] = finish(combine(x[k], own[k]), ranks);",
            ),
        ),
        Trial("ring-flags", redop="avg", ranks=3),
    ),
    Mutant(
        "the smaller for the larger",
        _PRELUDE,
        (("if (OP == MAX) return a < b ? b : a;", "if (OP == MAX) return a < b ? a : b;"),),
        Trial("ring-pipelined", redop="max"),
    ),
    Mutant(
        "a product that is a sum",
        _PRELUDE,
        (("if (OP == PROD) return E(W(a) * W(b));", "if (OP == PROD) return E(W(a) + W(b));"),),
        Trial("ring-ll", redop="prod"),
    ),
    Mutant(
        "halves added as their bits",
        _PRELUDE,
        (
            (
                "inline float widen(half_t x) { return half_to_float(x.bits); }",
                "inline float widen(half_t x) { return x.bits; }",
            ),
        ),
        Trial("one-shot", dtype="half"),
    ),
    Mutant(
        "bfloat16 cut off",
        _PRELUDE,
        (("(bits + 0x7fff + (bits >> 16 & 1)) >> 16", "(bits - 1) >> 16"),),
        Trial("two-shot", dtype="bfloat16"),
    ),
    Mutant(
        "a reduction in the type of bytes",
        _DIRECT,
        (("wide = combine_wide<REDOP>(wide, widen(x));", "wide = (signed char)combine_wide<REDOP>(wide, widen(x));"),),
        Trial("two-shot", dtype="int32"),
    ),
    Mutant(
        "one input left out",
        _DIRECT,
        (
            (
                "for (unsigned rank = 1; rank < world.ranks; rank++) {\n    const E* const peer",
                "for (unsigned rank = 2; rank < world.ranks; rank++) {\n    const E* const peer",
            ),
        ),
        Trial("one-shot", ranks=3),
    ),
    Mutant(
        "one input twice",
        _DIRECT,
        (
            (
                "const E* const peer = route.template place<E>(world.send, rank, at);",
                "const E* const peer = route.template place<E>(world.send, 1, at);",
            ),
        ),
        Trial("two-shot", ranks=3),
    ),
)

PLACES = (
    Mutant(
        "a tail left out",
        _DIRECT,
        (("  add_all<false, T>(rest, count - packs * Pack::LANES);\n", ""),),
        Trial("two-shot", size="4012"),
    ),
    Mutant(
        "a tail one element short",
        _DIRECT,
        (("count - packs * Pack::LANES);", "count - packs * Pack::LANES - 1);"),),
        Trial("one-shot", size="4004"),
    ),
    Mutant("a ring's tail left out", _RING, ((_TAIL, ""),), Trial("ring-flags", size="4012")),
    Mutant("a last shard that is whole", _DIRECT, ((f"{_SHARD}", "chunk);\n"),), Trial("two-shot", size="4012")),
    Mutant(
        "a shard that starts one element late",
        _DIRECT,
        (("const u64 first = call.rank * chunk;", "const u64 first = call.rank * chunk + call.rank;"),),
        TWO_SHOT,
    ),
    Mutant(
        "the shard of another rank",
        _DIRECT,
        (("const u64 first = call.rank * chunk;", "const u64 first = (call.rank ? call.rank : 1) * chunk;"),),
        TWO_SHOT,
    ),
    Mutant(
        "a result that goes to one rank too few",
        _DIRECT,
        (("i < route.targets; i++", "i + 1 < route.targets; i++"),),
        TWO_SHOT,
    ),
    Mutant(
        "one pack past the end",
        _DIRECT,
        (
            (
                "const u64 packs = whole ? count / Pack::LANES : 0;",
                "const u64 packs = whole ? count / Pack::LANES + 1 : 0;",
            ),
        ),
        Trial("one-shot", size="4000"),
    ),
    Mutant(
        "eight bytes past the end",
        _PACKETS,
        (
            (
                "  if (at + PAYLOAD <= bytes && (u64)(target + at) % PAYLOAD == 0) {",
                "  if ((u64)(target + at) % PAYLOAD == 0) {",
            ),
        ),
        Trial("one-shot-ll", size="4004"),
    ),
    Mutant(
        "a pack before the start",
        _RING,
        (
            (
                "target + tail, count - tail, 1);\n  return true;",
                "target + tail, count - tail, 1);\n  ((char*)target)[-4] = 1;\n  return true;",
            ),
        ),
        Trial("ring-flags", ranks=1),
    ),
    Mutant(
        "a FIFO written past its end",
        _RING,
        (
            (
                "    T* const out = VERBS & HAND ? theirs : outbox + sent % SLOTS * slot;\n",
                "    T* const out = VERBS & HAND ? theirs : outbox + sent % SLOTS * slot;\n"
                "    if (VERBS & SEND) outbox[SLOTS * slot + 7] = T();\n",
            ),
        ),
        RING,
    ),
    Mutant(
        "packets sent past their inbox",
        _LL,
        (("+ ((call.number & 1) * ranks + from) * room;", "+ ((call.number & 1) * ranks + from + ranks) * room;"),),
        LL,
    ),
    Mutant(
        "a broadcast of the neighbour",
        _RING,
        (("if (rank == root) ring.hop<KEEP | SEND>", "if (rank == (root + 1) % ranks) ring.hop<KEEP | SEND>"),),
        Trial("ring-flags", op="broadcast"),
    ),
    Mutant(
        "a broadcast of the next rank's root",
        "collbench/algorithms/ring.py",
        (("np.uint32(case.root)", "np.uint32((case.root + 1) % case.ranks)"),),
        Trial("ring-flags", op="broadcast"),
    ),
    Mutant(
        "gathered blocks in a wrong order",
        _RING,
        (
            (
                "ring.hop<TAKE | KEEP>(source, to(rank + 1), length);",
                "ring.hop<TAKE | KEEP>(source, to(rank + 2), length);",
            ),
        ),
        Trial("ring-pipelined", op="allgather", ranks=3),
    ),
    Mutant(
        "the block of another rank scattered",
        _RING,
        (
            (
                "ring.hop<TAKE | ADD | KEEP>(from(rank), target + lap, length);",
                "ring.hop<TAKE | ADD | KEEP>(from(rank + 1), target + lap, length);",
            ),
        ),
        Trial("ring-flags", op="reducescatter"),
    ),
    Mutant(
        "chunks that go one rank too far",
        _RING,
        (
            (
                "ring.hop<END>(to(rank + 1), to(rank + 1), length(rank + 1));",
                "ring.hop<END>(to(rank + 1), to(rank + 2), length(rank + 1));",
            ),
        ),
        RING,
    ),
)

PACKETS = (
    Mutant(
        "stale packets believed",
        _PACKETS,
        (("if (first >> 32 != flag || second >> 32 != flag) {", "if (false) {"),),
        LL,
    ),
    Mutant(
        "stale packets of a ring believed",
        _PACKETS,
        (("if (first >> 32 != flag || second >> 32 != flag) {", "if (first >> 32 == 0) {"),),
        RING_LL,
    ),
    Mutant(
        "older packets accepted",
        _PACKETS,
        (
            (_STALE, "    while (!(first >> 32 && second >> 32) && patience.again());\n"),
            ("if (first >> 32 != flag || second >> 32 != flag) {", "if (!(first >> 32 && second >> 32)) {"),
        ),
        LL,
    ),
    Mutant(
        "the second of two packets not looked at",
        _PACKETS,
        (
            ("if (first >> 32 != flag || second >> 32 != flag) {", "if (first >> 32 != flag) {"),
            (_STALE, "    while (first >> 32 != flag && patience.again());\n"),
        ),
        LL,
        unseen="on x86 the two words of a pair arrive in order and cycles apart: the second is hardly ever late",
    ),
    Mutant("one half for all packets", _LL, (("((call.number & 1) * ranks + from)", "from"),), LL),
    Mutant("one flag for all calls", _LL, (("flag = 2 * call.number + 1;", "flag = 1;"),), LL),
    Mutant(
        "one flag for every two calls",
        _LL,
        (("flag = 2 * call.number + 1;", "flag = 2 * (call.number >> 1) + 1;"),),
        LL,
        unseen="halves alternate, so calls that share a flag never share an inbox: as right as before",
    ),
    Mutant(
        "one flag for every four calls",
        _LL,
        (("flag = 2 * call.number + 1;", "flag = 2 * (call.number >> 2) + 1;"),),
        LL,
    ),
    Mutant(
        "half the slots of the packet ring",
        "collbench/algorithms/ring_ll.py",
        (("return 1 << (ranks - 1).bit_length()", "return 1"),),
        Trial("ring-ll", ranks=4),
    ),
    Mutant(
        "packets numbered anew in every call",
        _RING_LL,
        (("    channel.own.word[2] = sent;\n    channel.own.word[3] = taken;\n", ""),),
        RING_LL,
    ),
    Mutant(
        "a packet too few",
        _LL,
        (
            (
                "for (u64 i = first; i * PAYLOAD < bytes; i += threads) {\n    const u64 own",
                "for (u64 i = first; (i + 1) * PAYLOAD < bytes; i += threads) {\n    const u64 own",
            ),
        ),
        LL,
    ),
)

RINGS = (
    Mutant("a ring that does not wait for data", _RING, ((_TAKEN, ""),), RING),
    Mutant("a ring that does not wait for room", _RING, ((_ROOM, ""),), Trial("ring-flags", op="broadcast")),
    Mutant(
        "a ring that does not wait for room, gathering",
        _RING,
        ((_ROOM, ""),),
        Trial("ring-flags", op="allgather", ranks=4),
    ),
    Mutant("a ring that does not wait for room, reducing", _RING, ((_ROOM, ""),), Trial("ring-flags", ranks=4)),
    Mutant(
        "a pipelined ring that does not wait for data",
        _RING,
        ((_BOTH, "return await(room, free, world, error);"),),
        Trial("ring-pipelined", ranks=3),
    ),
    Mutant(
        "a pipelined ring that does not wait for what is handed over",
        _RING,
        (("return await(arrived + 1, handed, world, error);", "return;"),),
        Trial("ring-pipelined", ranks=3),
    ),
    Mutant(
        "a pipelined ring that hands over before it is done",
        _RING,
        (("return publish(arrived + 1, ++handed);", "return;"),),
        Trial("ring-pipelined", ranks=3),
    ),
    Mutant(
        "a sum that is handed to another place",
        _RING,
        (("length(rank), theirs(rank));", "length(rank), theirs(rank + 1));"),),
        Trial("ring-pipelined", ranks=3),
    ),
    Mutant(
        "a pipelined ring that does not wait for room",
        _RING,
        ((_BOTH, "return await(arrived, taken + 1, world, error);"), (_ROOM, "")),
        Trial("ring-pipelined", op="broadcast", ranks=3),
    ),
    Mutant(
        "room for a piece too many",
        _RING,
        (("free = sent + 1 - SLOTS", "free = sent - SLOTS"),),
        Trial("ring-flags", op="broadcast"),
    ),
    Mutant(
        "one slot where two are counted on",
        _RING,
        (("sent % SLOTS * slot", "sent % 1 * slot"), ("taken % SLOTS * slot", "taken % 1 * slot")),
        Trial("ring-flags", op="broadcast"),
    ),
    Mutant(
        "pieces numbered anew in every call",
        _RING,
        (("      mine->channel[block].own.word[0] = sent;\n      mine->channel[block].own.word[1] = taken;\n", ""),),
        RING,
    ),
    Mutant(
        "data published before it is there",
        _RING,
        (
            (
                "    const T* const in = VERBS & HANDED",
                "    if (VERBS & SEND) publish(&next->channel[block].arrived.word[0], sent + 1);\n"
                "    const T* const in = VERBS & HANDED",
            ),
        ),
        Trial("ring-flags", size="256K"),
    ),
    Mutant(
        "a slot given back before it is read",
        _RING,
        (
            (
                "    const T* const in = VERBS & HANDED",
                "    if (VERBS & TAKE) publish(&previous->channel[block].room.word[0], taken + 1);\n"
                "    const T* const in = VERBS & HANDED",
            ),
        ),
        Trial("ring-flags", op="broadcast", size="256K"),
        unseen="no rank is delayed while it reads a slot; tests/kernels/test_races.py sees it",
    ),
    Mutant(
        "a ring that stops one hop early",
        _RING,
        (("    ring.hop<END>(to(rank + 1), to(rank + 1), length(rank + 1));\n", ""),),
        Trial("ring-flags", ranks=3),
    ),
    Mutant(
        "data that is late",
        _RING,
        (
            (
                "    if (VERBS & TAKE) await(arrived, taken + 1, world, error);\n",
                "    if (VERBS & TAKE) await(arrived, taken, world, error);\n",
            ),
        ),
        RING,
    ),
)

CALLS = (
    Mutant(
        "a launch loop that runs once",
        _HOST,
        ((_LOOP, _LOOP.replace("count < launches", "count < 1")),),
        Trial("one-shot", ranks=1),
    ),
    Mutant(
        "a launch loop that runs once, large",
        _HOST,
        ((_LOOP, _LOOP.replace("count < launches", "count < 1")),),
        Trial("two-shot", size="64K"),
    ),
    Mutant(
        "a launch loop that never runs", _HOST, ((_LOOP, _LOOP.replace("count < launches", "count < 0")),), ONE_SHOT
    ),
    Mutant(
        "a launch loop that runs every other time",
        _HOST,
        ((_LOOP, _LOOP.replace("count++", "count += 2")),),
        Trial("one-shot", ranks=1),
    ),
    Mutant(
        "every second call wrong",
        _DIRECT,
        ((_ONE_SHOT_END, "  if (call.number % 2) add_part(route(call, 0, call.rank, 1), count);\n"),),
        ONE_SHOT,
    ),
    Mutant(
        "every other second call wrong",
        _DIRECT,
        ((_ONE_SHOT_END, "  if (call.number % 2 == 0) add_part(route(call, 0, call.rank, 1), count);\n"),),
        ONE_SHOT,
    ),
    Mutant(
        "every second call wrong, large",
        _DIRECT,
        ((_ONE_SHOT_END, "  if (call.number % 2) add_part(route(call, 0, call.rank, 1), count);\n"),),
        Trial("one-shot", size="8M"),
    ),
    Mutant(
        "one call in ten wrong",
        _DIRECT,
        ((_ONE_SHOT_END, "  if (call.number % 10) add_part(route(call, 0, call.rank, 1), count);\n"),),
        ONE_SHOT,
    ),
    Mutant(
        "one call in fifty wrong",
        _DIRECT,
        ((_ONE_SHOT_END, "  if (call.number % 50) add_part(route(call, 0, call.rank, 1), count);\n"),),
        ONE_SHOT,
    ),
    Mutant(
        "one call in fifty wrong, large",
        _DIRECT,
        ((_ONE_SHOT_END, "  if (call.number % 50) add_part(route(call, 0, call.rank, 1), count);\n"),),
        Trial("one-shot", size="8M"),
        unseen="too few calls are checked of operations that take milliseconds",
    ),
    Mutant(
        "calls that do nothing after the first",
        _DIRECT,
        ((_ONE_SHOT_END, "  if (call.number < 2) add_part(route(call, 0, call.rank, 1), count);\n"),),
        ONE_SHOT,
    ),
    Mutant(
        "relaxed flags",
        _FLAGS,
        (
            ("#define PUBLISH_ORDER __ATOMIC_RELEASE", "#define PUBLISH_ORDER __ATOMIC_RELAXED"),
            ("#define AWAIT_ORDER __ATOMIC_ACQUIRE", "#define AWAIT_ORDER __ATOMIC_RELAXED"),
        ),
        RING,
        unseen="x86 keeps these in order whatever they are called; tests/kernels/test_races.py sees them",
    ),
    Mutant(
        "streamed stores that nobody waits for",
        _HOST,
        (("  _mm_sfence();\n", ""),),
        Trial("ring-flags", size="4M"),
        unseen="streamed stores leave the core long before the other rank reads them, unless the machine is unlucky",
    ),
)

MUTANTS = (*MEETINGS, *ARITHMETIC, *PLACES, *PACKETS, *RINGS, *CALLS)
