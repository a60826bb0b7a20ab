// The best of what threads have found: the largest, and of equals the one with the lowest number.
#pragma once

#include <cstdint>

#include "inference/cuda/warp.h"

namespace regccrf::cuda {

struct Candidate {
  double value;
  std::int32_t number;

  __device__ bool before(const Candidate& y) const {
    return value > y.value || (value == y.value && number < y.number);
  }
  __device__ void take(const Candidate& other) {
    if (other.before(*this)) *this = other;
  }
};

// Of a warp's threads, to all of them; of a block's, at most kMostThreads.
__device__ inline Candidate warp_best(Candidate mine) {
  for (int bit = 16; bit > 0; bit /= 2)
    mine.take({__shfl_xor_sync(kAllLanes, mine.value, bit), __shfl_xor_sync(kAllLanes, mine.number, bit)});
  return mine;
}
template <int kMostThreads>
__device__ Candidate block_best(Candidate mine) {
  __shared__ Candidate best[kMostThreads / 32];
  mine = warp_best(mine);
  __syncthreads();
  if (threadIdx.x % 32 == 0) best[threadIdx.x / 32] = mine;
  __syncthreads();
  return warp_best(best[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0]);
}

}  // namespace regccrf::cuda
