// How `mpi` calls its library: C functions by their addresses, from the same compiled loop as the hand-written kernels, so
// that neither has an interpreter in its time.  Launched by collbench/platforms/cpu/mpi.py.
#include "../steps.cu"

#include <sched.h>
#include <sys/resource.h>
#include <time.h>

// A function of C and its arguments.  All are passed as words: that is how x86-64 and AArch64 pass integers of any size
// and pointers, and a handle of MPI is either, by the library.  Surplus arguments are ignored.
struct Call {
  u64 function;
  u64 count;  // of its arguments
  u64 arguments[12];
  u64 errors;  // the bits of what it returns that say it failed; none if it returns no status
};
typedef u64 (*Six)(u64, u64, u64, u64, u64, u64);  // all in registers
typedef u64 (*Twelve)(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64);

inline u64 invoke(const Call& call) {
  const u64* const a = call.arguments;
  if (call.count <= 6) return ((Six)call.function)(a[0], a[1], a[2], a[3], a[4], a[5]);
  return ((Twelve)call.function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
}

// Carry the calls out, one after the other; the last status that is an error is left in `failure`.
extern "C" __global__ void call_library(PARAMETER(u64) calls, PARAMETER(u64) count, PARAMETER(u64) failure) {
  for (u64 i = 0; i < count; i++) {
    const Call& call = ((const Call*)calls)[i];
    const u64 error = invoke(call) & call.errors;
    if (error) *(u64*)failure = error;
  }
}

// Involuntary context switches, cores and time off the core of this thread while operations were timed.
struct Scheduled {
  double off_core;  // seconds in which it was not running
  u64 switches;     // involuntary context switches
  u64 cores[2];     // on which it ran, before and after
};

// Seconds in which this thread was not running, so far: wall time less CPU time.
inline double off_core() {
  timespec wall, cpu;
  clock_gettime(CLOCK_MONOTONIC, &wall);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  return double(wall.tv_sec - cpu.tv_sec) + 1e-9 * double(wall.tv_nsec - cpu.tv_nsec);
}

inline u64 switches() {
  rusage used;
  getrusage(RUSAGE_THREAD, &used);
  return u64(used.ru_nivcsw);
}

// Seconds that so many operations take on this rank, whatever they are, from when all ranks have met: nothing lies
// between the meeting and the first operation, and nothing between the last one and the clock.
extern "C" double timed(const Call* meeting, void (*operation)(void**, unsigned, unsigned, unsigned), void** arguments,
                        unsigned launches, Scheduled* scheduled) {
  scheduled->switches = switches();
  scheduled->cores[0] = u64(sched_getcpu());
  scheduled->off_core = off_core();
  invoke(*meeting);
  const u64 start = shared_clock();
  operation(arguments, 1, 1, launches);
  const double seconds = 1e-9 * double(shared_clock() - start);
  scheduled->off_core = off_core() - scheduled->off_core;
  scheduled->cores[1] = u64(sched_getcpu());
  scheduled->switches = switches() - scheduled->switches;
  return seconds;
}

// Our kernels' addition as an operation of MPI, for types that the library cannot add; and the same for large counts.
extern "C" void combine_elements(void* source, void* target, int* count, void*) {
  add((u64)target, (u64)source, (u64)*count);
}
extern "C" void combine_elements_c(void* source, void* target, long long* count, void*) {
  add((u64)target, (u64)source, (u64)*count);
}
