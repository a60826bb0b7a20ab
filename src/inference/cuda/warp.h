// What a warp does in one instruction, where CUDA has no function for it or devices before sm_80 have no such
// instruction: these get by with shuffles. tests/emulated has a file of the same name that takes its place.
#pragma once

#include <cuda_runtime.h>

namespace regccrf::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

// sum += m · y by the tensor cores, all lanes of a warp together: a lane has m[lane / 4][lane % 4],
// y[lane % 4][lane / 4], and of the 8 × 8 sums those at [lane / 4][2 · (lane % 4) + n].
#if __CUDA_ARCH__ >= 800
__device__ inline void multiply_tile(double (&sum)[2], double m, double y) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(sum[0]), "+d"(sum[1])
      : "d"(m), "d"(y));
}
#else
static __device__ __noinline__ double2 multiply_by_shuffles(double2 sum, double m, double y) {
  const int lane = threadIdx.x % 32, row = lane / 4 * 4, column = lane % 4 * 8;
  for (int k = 0; k < 4; ++k) {
    const double x = __shfl_sync(kAllLanes, m, row + k);
    sum.x = fma(x, __shfl_sync(kAllLanes, y, column + k), sum.x);
    sum.y = fma(x, __shfl_sync(kAllLanes, y, column + 4 + k), sum.y);
  }
  return sum;
}
__device__ inline void multiply_tile(double (&sum)[2], double m, double y) {
  const double2 both = multiply_by_shuffles({sum[0], sum[1]}, m, y);
  sum[0] = both.x, sum[1] = both.y;
}
#endif

// The same for two tiles, one below the other: a lane has m[lane / 4 + 8 · n][lane % 4], n = 0, 1.
__device__ inline void multiply_two_tiles(double (&upper)[2], double (&lower)[2], double m0, double m1, double y) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+d"(upper[0]), "+d"(upper[1]), "+d"(lower[0]), "+d"(lower[1])
      : "d"(m0), "d"(m1), "d"(y));
#else
  multiply_tile(upper, m0, y);
  multiply_tile(lower, m1, y);
#endif
}

// The largest and the least of a warp's integers of 32 bits, to all lanes.
template <class Integer>
__device__ Integer reduce_max(Integer x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kAllLanes, x);
#else
  for (int bit = 16; bit > 0; bit /= 2) x = max(x, __shfl_xor_sync(kAllLanes, x, bit));
  return x;
#endif
}
template <class Integer>
__device__ Integer reduce_min(Integer x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_min_sync(kAllLanes, x);
#else
  for (int bit = 16; bit > 0; bit /= 2) x = min(x, __shfl_xor_sync(kAllLanes, x, bit));
  return x;
#endif
}

}  // namespace regccrf::cuda
