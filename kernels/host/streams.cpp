// The kernels with every rank a stream of calls of its own: fill, launch, check, and on to the next call.  Nothing but
// the kernels themselves makes one rank wait for another, least of all a join between calls, which would hide what
// is missing at their ends.  Compiled with -DHOST_GRID -fsanitize=thread by collbench/measure/races.py; docs/kernels.md
// is the story.
//
// Nothing here may order the ranks: ThreadSanitizer would take it for part of the kernels.  So what they share is
// either theirs, or set before they start, or relaxed atomic.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <cstring>
#include <string>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "streams.hpp"

// ---- what is run ----

struct Options {
  std::map<std::string, std::string> given;

  Options(int count, char** words) {
    for (int i = 1; i < count; i++) {
      const std::string word = words[i];
      given[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    }
  }
  std::vector<std::string> names(const std::string& key) const {
    std::vector<std::string> found;
    std::string rest = given.at(key) + ",";
    for (std::size_t end; (end = rest.find(',')) != std::string::npos; rest = rest.substr(end + 1))
      found.push_back(rest.substr(0, end));
    return found;
  }
  std::vector<unsigned> numbers(const std::string& key) const {
    std::vector<unsigned> found;
    for (const std::string& name : names(key)) found.push_back(unsigned(std::stoul(name)));
    return found;
  }
  unsigned number(const std::string& key) const { return numbers(key)[0]; }
};

const unsigned SLOT = 16;  // elements of a piece: few, so that a chunk takes several laps
const unsigned BOX = 1152;  // bytes: 18 groups of bfloat16, so that a warp's tile fits and a message takes several rounds
const unsigned MANY_LOOKS = 5000, LONG_IDLE = 20000, MOST_IDLE = 60000;  // in vain; milliseconds
const unsigned SLOT_BYTES = SLOT * sizeof(T), MOST_BLOCKS = 2;

struct Plan {
  unsigned ranks, calls, seed, start, slots, long_place, milliseconds, timeout;
  unsigned before, after;  // whether all ranks meet before and after each launch: for a judge, who asks one thing at a time
  unsigned node;           // ranks of a node: arrays of others have no address; 0: all reach all
  unsigned careful;        // whether only that is given up in which nothing moves, however busy the machine is
  unsigned fifo;           // bytes of a user's kernel's FIFO
  std::vector<unsigned> counts, blocks, threads;
  std::vector<std::string> kernels;

  explicit Plan(const Options& options)
      : ranks(options.number("ranks")),
        calls(options.number("calls")),
        seed(options.number("seed")),
        start(options.number("start")),
        slots(options.number("slots")),
        long_place(options.number("stall")),
        milliseconds(options.number("milliseconds")),
        timeout(options.number("timeout")),
        before(options.number("before")),
        after(options.number("after")),
        node(options.number("node")),
        careful(options.number("careful")),
        fifo(options.number("fifo")),
        counts(options.numbers("counts")),
        blocks(options.numbers("blocks")),
        threads(options.numbers("threads")),
        kernels(options.names("kernels")) {}

  unsigned most() const { return *std::max_element(counts.begin(), counts.end()); }
  u64 room() const { return (most() * sizeof(T) + PAIR_DATA - 1) / PAIR_DATA; }  // pairs of packets in an inbox

  // Where each kernel's FIFO starts behind the flags, and where they end.
  u64 flags_fifo() const { return 0; }
  u64 pipelined_fifo() const { return flags_fifo() + MOST_BLOCKS * 2 * SLOT_BYTES; }
  u64 ring_ll_fifo() const { return pipelined_fifo() + MOST_BLOCKS * 2 * SLOT_BYTES; }
  u64 one_shot_ll_fifo() const { return ring_ll_fifo() + MOST_BLOCKS * slots * 2 * SLOT_BYTES; }
  u64 narrow_fifo() const { return (one_shot_ll_fifo() + 2 * ranks * room() * PAIR_BYTES + 127) / 128 * 128; }
  u64 user_fifo() const { return narrow_fifo() + 4 * ranks * BOX; }
  u64 end() const { return user_fifo() + fifo; }
};

// One call as one rank sees it; all but `rank` is the same everywhere.
struct Job {
  const Plan& plan;
  unsigned call, rank, count, blocks, threads, root;
  bool in_place;

  // Elements that a block sends at once: another number in every call, while slots stay where they are.
  u64 piece() const { return SLOT >> call % 3; }
  u64 chunk() const { return ((count + plan.ranks - 1) / plan.ranks + Pack::LANES - 1) / Pack::LANES * Pack::LANES; }

  Arguments arguments() const {
    return {plan.flags_fifo(), plan.pipelined_fifo(), plan.ring_ll_fifo(), plan.one_shot_ll_fifo(),
            SLOT,              SLOT_BYTES,            piece(),             chunk(),
            plan.room(),       plan.narrow_fifo(),    BOX,                 plan.user_fifo(),
            plan.slots,        count,                 root};
  }
};

T value(unsigned call, unsigned rank, unsigned index) {  // small and whole, so that sums of four are exact in bfloat16
  return T((call * 131 + rank * 37 + index * 7 + index / 64 + 1) % 61);
}

T sum(const Job& job, unsigned index) {
  T total = 0;
  for (unsigned rank = 0; rank < job.plan.ranks; rank++) total += value(job.call, rank, index);
  return total;
}

const unsigned GUARD = 64;  // elements behind a result that no rank may write
const T UNTOUCHED = -2;

struct Results {
  bool gathers, scatters;  // whether results, or inputs, hold a part for every rank
  T (*wanted)(const Job& job, unsigned index);

  unsigned length(const Job& job) const { return job.count * (gathers ? job.plan.ranks : 1); }
};
const std::map<Collective, Results> RESULTS = {
    {ALLREDUCE, {false, false, sum}},
    {BROADCAST, {false, false, [](const Job& job, unsigned i) { return value(job.call, job.root, i); }}},
    {ALLGATHER, {true, false, [](const Job& job, unsigned i) { return value(job.call, i / job.count, i % job.count); }}},
    {REDUCESCATTER,
     {false, true, [](const Job& job, unsigned i) { return sum(job, job.rank * job.count + i); }}},
};

#include "streams_why.hpp"

const Kernel& kernel_named(const std::string& name) {
  const Kernel* found = KERNELS;
  while (found->name && name != found->name) found++;
  if (found->name) return *found;
  std::fprintf(stderr, "no kernel %s in this program\n", name.c_str());
  std::exit(1);
}

// ---- the ranks ----

struct Memory {
  Window* window;
  T *send, *receive;

  explicit Memory(const Plan& plan) {
    const u64 buffer = (u64(plan.most()) * plan.ranks + GUARD) * sizeof(T);
    window = reinterpret_cast<Window*>(zeroed(WINDOW_HEAD + plan.end()));
    send = reinterpret_cast<T*>(zeroed(buffer));
    receive = reinterpret_cast<T*>(zeroed(buffer));
    for (Channel& channel : window->channel) {
      channel.arrived.word[0] = channel.arrived.word[1] = channel.room.word[0] = plan.start;
      for (unsigned i = 0; i < 5; i++) channel.own.word[i] = plan.start;
    }
    if (plan.careful) return;  // exercises number their meetings from 1, and need not wrap
    window->calls.word[0] = plan.start;
    for (unsigned& flag : window->met) flag = 4 * plan.start;
  }
  static void* zeroed(u64 bytes) {
    const u64 whole = (bytes + 127) / 128 * 128;
    return std::memset(std::aligned_alloc(128, whole), 0, whole);
  }
};

struct Rank {
  const Plan& plan;
  const std::vector<Memory>& memory;
  const unsigned rank;
  pthread_barrier_t& meeting;
  std::atomic<unsigned> done = 0, wrong = 0;
  double seconds = 0;  // of the last call
  Wrong found;         // the first wrong result; for others once `told` says so
  std::atomic<bool> told = false;

  Rank(const Plan& plan, const std::vector<Memory>& memory, unsigned rank, pthread_barrier_t& meeting)
      : plan(plan), memory(memory), rank(rank), meeting(meeting) {}

  template <class E>
  E chosen(const std::vector<E>& of, unsigned call, unsigned salt) const {
    return of[mixed((plan.seed * 1009ULL + call) * 16 + salt) % of.size()];
  }

  void run() {
    for (unsigned call = 0; call < plan.calls; call++) {
      const Kernel& kernel = kernel_named(plan.kernels[call % plan.kernels.size()]);
      const Job job{plan,
                    call,
                    rank,
                    chosen(plan.counts, call, 1),
                    chosen(plan.blocks, call, 2),
                    chosen(plan.threads, call, 3),
                    call % plan.ranks,
                    kernel.in_place && chosen<bool>({false, true}, call, 4)};
      const auto began = std::chrono::steady_clock::now();
      const Results& results = RESULTS.at(kernel.collective);
      fill(job, results);
      if (plan.before) pthread_barrier_wait(&meeting);
      launch(job, kernel);
      if (plan.after) pthread_barrier_wait(&meeting);
      check(job, results);
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      done.fetch_add(1, std::memory_order_relaxed);
    }
  }

  // A rank's buffers; in place, the smaller one is its part of the larger one, as in NCCL.
  T* receive_of(const Job& job, const Results& results, unsigned at) const {
    return memory[at].receive + (job.in_place && results.scatters ? at * job.count : 0);
  }
  T* send_of(const Job& job, const Results& results, unsigned at) const {
    if (!job.in_place) return memory[at].send;
    return memory[at].receive + (results.gathers ? at * job.count : 0);
  }

  void fill(const Job& job, const Results& results) const {
    if (!job.in_place) std::fill_n(memory[rank].receive, results.length(job), T(-1));
    if (guarded(results)) std::fill_n(memory[rank].receive + results.length(job), GUARD, UNTOUCHED);
    T* const input = send_of(job, results, rank);
    for (unsigned i = 0; i < job.count * (results.scatters ? plan.ranks : 1); i++)
      input[i] = value(job.call, rank, i);
  }

  // Where ranks meet before and after a call, nobody else is at work when a rank looks behind its result.
  bool guarded(const Results& results) const { return plan.before && plan.after && !results.scatters; }

  void launch(const Job& job, const Kernel& kernel) const {
    const Results& results = RESULTS.at(kernel.collective);
    World world{};
    for (unsigned at = 0; at < plan.ranks; at++) {
      world.window[at] = reinterpret_cast<unsigned char*>(memory[at].window);
      if (plan.node && at / plan.node != rank / plan.node) continue;
      world.send[at] = reinterpret_cast<unsigned char*>(send_of(job, results, at));
      world.receive[at] = reinterpret_cast<unsigned char*>(receive_of(job, results, at));
    }
    world.spins = ~0ULL;
    world.ranks = plan.ranks, world.first = rank, world.stride = 1, world.blocks = job.blocks, world.yield_after = 1;
    world.streamed = 2;  // small pieces go the way of large ones too

    const Arguments arguments = job.arguments();
    std::vector<std::unique_ptr<Block>> blocks;
    for (unsigned block = 0; block < job.blocks; block++) blocks.push_back(std::make_unique<Block>(job.threads));
    std::vector<std::thread> grid;
    for (unsigned index = 0; index < job.blocks * job.threads; index++)
      grid.emplace_back([&, index] {
        threadIdx.x = index % job.threads, blockIdx.x = index / job.threads;
        blockDim.x = job.threads, gridDim.x = job.blocks;
        own_block = blocks[blockIdx.x].get();
        luck = luck_of(job, index);
        luck.error = memory[rank].window->error.word;
        stall(START);
        kernel.run(world, arguments);
      });
    for (auto& thread : grid) thread.join();
  }

  // The long stall falls on the last thread of one rank, in every fourth call, and outlasts what the others can do.
  Luck luck_of(const Job& job, unsigned thread) const {
    Luck luck{((plan.seed * 1009ULL + job.call) * 64 + rank) * 64 + thread};
    if (plan.long_place && rank == job.call / 4 % plan.ranks && job.call % 4 == 2 &&
        thread + 1 == job.blocks * job.threads) {
      luck.long_stall = Place(plan.long_place);
      luck.milliseconds = plan.milliseconds;
      luck.quiet = std::clamp(unsigned(1000 * seconds), 5u, 50u);  // on a slow machine, too, nobody is just late
    }
    return luck;
  }

  void check(const Job& job, const Results& results) {
    const T* const result = receive_of(job, results, rank);
    for (unsigned i = 0; i < results.length(job); i++) {
      const T wanted = results.wanted(job, i);
      if (result[i] == wanted) continue;
      if (wrong.fetch_add(1, std::memory_order_relaxed) == 0) {
        std::fprintf(stderr, "rank %u, call %u of %u elements: element %u is %g, not %g\n", rank, job.call, job.count,
                     i, double(result[i]), double(wanted));
        found = explained(job, results, std::vector<T>(result, result + results.length(job)));
        told.store(true, std::memory_order_release);
      }
      return;
    }
    for (unsigned i = results.length(job); guarded(results) && i < results.length(job) + GUARD; i++) {
      if (result[i] == UNTOUCHED) continue;
      if (wrong.fetch_add(1, std::memory_order_relaxed) == 0) {
        found = beyond(job, results, i, result[i]);
        told.store(true, std::memory_order_release);
      }
      return;
    }
  }
};

struct Streams {
  const Plan& plan;
  std::vector<Memory> memory;
  std::vector<std::unique_ptr<Rank>> ranks;
  mutable pthread_barrier_t meeting;

  explicit Streams(const Plan& plan) : plan(plan) {
    pthread_barrier_init(&meeting, nullptr, plan.ranks);
    for (unsigned rank = 0; rank < plan.ranks; rank++) memory.emplace_back(plan);
    for (unsigned rank = 0; rank < plan.ranks; rank++) ranks.push_back(std::make_unique<Rank>(plan, memory, rank, meeting));
  }

  unsigned total(std::atomic<unsigned> Rank::*what) const {
    unsigned sum = 0;
    for (const auto& rank : ranks) sum += (rank.get()->*what).load(std::memory_order_relaxed);
    return sum;
  }

  void report(bool gave_up) const {
    flockfile(stdout);  // a user's kernel may print, too
    std::printf("{\"calls\": %u, \"wrong\": %u, \"gave_up\": %s, \"found\": [", total(&Rank::done),
                total(&Rank::wrong), gave_up ? "true" : "false");
    const char* comma = "";
    for (const auto& rank : ranks)
      if (rank->told.load(std::memory_order_acquire)) std::printf("%s%s", comma, rank->found.json().c_str()), comma = ", ";
    std::vector<unsigned> waits, ended;  // by rank: how far into its window lies what it waits for; calls it has ended
    for (const Memory& of : memory) waits.push_back(__atomic_load_n(&of.window->error.word[1], __ATOMIC_RELAXED));
    for (const auto& rank : ranks) ended.push_back(rank->done.load(std::memory_order_relaxed));
    std::printf("], \"waits\": %s, \"ended\": %s, \"raised\": %u}\n", Wrong::list(waits).c_str(),
                Wrong::list(ended).c_str(), raised.load(std::memory_order_relaxed));
    std::fflush(stdout);
  }

  // Places of all buffers, for the reader of a report of a race.
  void tell_places() const {
    for (unsigned rank = 0; rank < plan.ranks; rank++)
      std::fprintf(stderr, "memory %u %p %p %p %p\n", rank, (void*)memory[rank].window,
                   (void*)(memory[rank].window + 1), (void*)memory[rank].send, (void*)memory[rank].receive);
  }

  // Gives up when `timeout` milliseconds pass in which no rank ends a call.  A careful one asks for more: that no thread
  // takes a step, though all had the time to, as their looks in vain or the time that they computed say; or for a minute.
  void run() const {
    tell_places();
    std::vector<std::thread> drivers;
    for (const auto& rank : ranks) drivers.emplace_back([&rank] { rank->run(); });
    unsigned idle = 0, before = 0, looked = 0, past = 0, ended = 0;
    clock_t computed = 0;
    for (unsigned done; (done = total(&Rank::done)) < plan.ranks * plan.calls;) {
      const unsigned now = done + (plan.careful ? steps.load(std::memory_order_relaxed) : 0);
      if (now != before) idle = 0, looked = looks.load(std::memory_order_relaxed), computed = clock();
      past = done == ended ? past + 1 : 0;
      before = now, ended = done;
      const bool had_time = looks.load(std::memory_order_relaxed) - looked > MANY_LOOKS || idle > LONG_IDLE ||
                            clock() - computed > 2 * CLOCKS_PER_SEC;
      if ((++idle > plan.timeout && (had_time || !plan.careful)) || past > MOST_IDLE) {
        report(true), _exit(0);
      }
      usleep(1000);
    }
    for (auto& driver : drivers) driver.join();
    report(false);
  }
};

int main(int count, char** words) {
  const Options options(count, words);
  const Plan plan(options);
  Streams(plan).run();
}
