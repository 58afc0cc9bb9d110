// Errors of a wire format on numbers like gradients, over rounds.
// Shares no code with the studied kernels.  Launched by collbench/measure/wire_errors.py; any grid.
#include "recipe.cuh"

// Near to normal, as an integer with a standard deviation of some 37800: four numbers of 16 bits added.
__device__ inline int bell(unsigned noise) {
  const unsigned other = mix(noise + 1);
  return int((noise & 0xffff) + (noise >> 16) + (other & 0xffff) + (other >> 16)) - 2 * 0xffff;
}

// The gradient of a parameter in a round: a mean that stays, and twice as much noise that no two ranks or rounds share.
// Magnitudes differ by up to eight from parameter to parameter.  An integer, so that sums are exact.
__device__ inline int gradient(unsigned seed, u64 element, unsigned rank, unsigned round) {
  const unsigned own = mix(unsigned(element) ^ mix(seed));
  return (bell(mix(own + 2)) / 2 + bell(mix(own ^ mix(round ^ mix(rank + 1))))) >> (own & 3);
}

struct Sums {  // of a parameter's errors: of them, of their squares, the largest; and of the squares of what was exact
  double errors, squares, most, exact;
};

extern "C" __global__ void study_clear(PARAMETER(u64) target, PARAMETER(u64) words) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 at = blockIdx.x * blockDim.x + threadIdx.x; at < words; at += stride) ((unsigned*)target)[at] = 0;
}

extern "C" __global__ void study_fill(PARAMETER(u64) target, PARAMETER(u64) count, PARAMETER(unsigned) seed,
                                      PARAMETER(unsigned) rank, PARAMETER(unsigned) round) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride)
    ((float*)target)[at] = float(gradient(seed, at, rank, round));
}

extern "C" __global__ void study_add(PARAMETER(u64) got, PARAMETER(u64) count, PARAMETER(unsigned) seed,
                                     PARAMETER(unsigned) ranks, PARAMETER(unsigned) round, PARAMETER(u64) target) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride) {
    double exact = 0;
    for (unsigned rank = 0; rank < ranks; rank++) exact += gradient(seed, at, rank, round);
    const double error = double(((const float*)got)[at]) - exact, size = error < 0 ? -error : error;
    Sums& sums = ((Sums*)target)[at];
    sums.errors += error, sums.squares += error * error, sums.exact += exact * exact;
    sums.most = size > sums.most ? size : sums.most;
  }
}
