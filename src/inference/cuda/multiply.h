// The instructions that CUDA has no functions for. tests/emulated has a file of the same name that takes its place.
#pragma once

namespace regccrf::cuda {

// sum += m · y by the tensor cores, all lanes of a warp together: a lane has m[lane / 4][lane % 4],
// y[lane % 4][lane / 4], and of the 8 × 8 sums those at [lane / 4][2 · (lane % 4) + n].
__device__ inline void multiply_tile(double (&sum)[2], double m, double y) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(sum[0]), "+d"(sum[1])
      : "d"(m), "d"(y));
}

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

}  // namespace regccrf::cuda
