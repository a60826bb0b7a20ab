// The one instruction that CUDA has no function for. tests/emulated has a file of the same name that takes its place.
#pragma once

namespace regccrf::cuda {

// sum += m · y by the tensor cores, all lanes of a warp together: a lane has m[lane / 4][lane % 4],
// y[lane % 4][lane / 4], and of the 8 × 8 sums those at [lane / 4][2 · (lane % 4) + n].
__device__ inline void multiply_tile(double (&sum)[2], double m, double y) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(sum[0]), "+d"(sum[1])
      : "d"(m), "d"(y));
}

}  // namespace regccrf::cuda
