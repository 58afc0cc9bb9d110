// An all-reduce as a C program makes it: what `mpi` must equal.
//
// Compiled as a shared library its `loop` runs in the product's own ranks, over the product's buffers (tools/bench.py).
// As a program, with the library's mpi.h, it shows what depends on the buffers and on the level of threads:
//   mpiexec -n 2 c_loop BYTES LAUNCHES SAMPLES malloc|aligned|huge|shared single|multiple
// prints the median seconds of an operation on the slowest rank.  Buffers are from malloc, which begins 16 bytes behind
// a page, or at the beginning of pages of 4 KiB or of 2 MiB, or in a shared window as the product's are.
#include <mpi.h>
#include <sys/mman.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" double loop(const void* send, void* receive, int count, int launches) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < launches; i++) MPI_Allreduce(send, receive, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  double mine = MPI_Wtime() - start, slowest;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest / launches;
}

static char* two_buffers(const std::string& kind, size_t nbytes) {
  const size_t whole = 2 * nbytes;
  if (kind == "shared") {
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    void* base;
    static MPI_Win window;
    MPI_Win_allocate_shared(whole, 1, MPI_INFO_NULL, node, &base, &window);
    return (char*)base;
  }
  if (kind == "malloc") return (char*)malloc(whole);
  char* const base = (char*)aligned_alloc(1 << 21, (whole + (1 << 21) - 1) >> 21 << 21);
  madvise(base, whole, kind == "huge" ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return base;
}

int main(int, char** arguments) {
  int provided;
  const bool multiple = std::string(arguments[5]) == "multiple";
  MPI_Init_thread(nullptr, nullptr, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  const size_t nbytes = atoll(arguments[1]);
  const int launches = atoi(arguments[2]), samples = atoi(arguments[3]);
  char* const send = two_buffers(arguments[4], nbytes);
  char* const receive = std::string(arguments[4]) == "malloc" ? (char*)malloc(nbytes) : send + nbytes;
  memset(send, 0, nbytes);
  memset(receive, 0, nbytes);
  std::vector<double> seconds;
  for (int i = 0; i < samples; i++) seconds.push_back(loop(send, receive, nbytes / 4, launches));
  std::sort(seconds.begin(), seconds.end());
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) std::printf("%.9g\n", seconds[samples / 2]);
  MPI_Finalize();
}
