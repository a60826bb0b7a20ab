// Sequences done in wide arithmetic (wide.h) on the device: those that a fast pass could not be trusted with, and
// samples.
#pragma once

#include "inference/cuda/device.h"
#include "inference/cuda/scores.h"
#include "inference/numerics/wide.h"

namespace regccrf::cuda {

// One slot serves one block; blocks take sequences in turn. alpha is kept for one segment of positions at a time, and
// at the first position of every segment.
struct WideMemory {
  std::int32_t slots, segment, segments;
  std::int64_t slot_numbers;  // Wide numbers of a slot
  Wide* numbers;              // [slots, slot_numbers]
  double* bigrams;            // [slots, K, K] or null
};
WideMemory allocate_wide(Arena& arena, const DeviceConstraint::Impl& constraint, const Batch& batch, bool bigrams);

struct Present {
  const std::int32_t* length;  // [B]
  const std::int64_t* row;     // [B, T]
  const std::int32_t* flag;    // [B] 0: fine, 1: do it again, 2: the counts are zeros
  const std::int32_t* bad;     // [1] as in Prepared; read for samples
};
// `loss`: made of all values in the end, or null; `blocks_done`: [1] zero, for the blocks to count themselves.
void again_wide(const DeviceConstraint::Impl& constraint, const Batch& batch, const Expectation& wanted,
                const Present& present, const WideMemory& work, const Loss* loss, std::uint32_t* blocks_done,
                cudaStream_t stream);
void sample_wide(const DeviceConstraint::Impl& constraint, const Batch& batch, const Samples& samples,
                 const Present& present, const WideMemory& work, cudaStream_t stream);

// exp of a call's scores, each times `factor`, by a whole block: transitions [K, K], start and end [K] …
__device__ inline void load_wide_model(const Batch& batch, std::int32_t K, double factor, Wide* g, Wide* start,
                                       Wide* end) {
  for (std::int32_t i = threadIdx.x; i < K * K; i += blockDim.x)
    g[i] = wide_exp(score_at(batch.transitions, batch.type, i) * factor);
  for (std::int32_t k = threadIdx.x; k < K; k += blockDim.x) {
    start[k] = wide_exp(batch.start ? score_at(batch.start, batch.type, k) * factor : 0);
    end[k] = wide_exp(batch.end ? score_at(batch.end, batch.type, k) * factor : 0);
  }
}

// … and the emissions of a row, [K + 1], the last of which is zero.
__device__ inline void load_wide_row(const Batch& batch, std::int32_t K, double factor, std::int64_t row, Wide* out) {
  for (std::int32_t k = threadIdx.x; k <= K; k += blockDim.x) {
    out[k] = k < K ? wide_exp(score_at(batch.emissions, batch.emissions_type, row * K + k) * factor) : kWideZero;
  }
}

// The sum of what a block's threads have, to all of them.
template <int kThreads, class Number>
__device__ Number block_total(Number mine) {
  __shared__ Number all[kThreads];
  __syncthreads();
  all[threadIdx.x] = mine;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) all[threadIdx.x] = all[threadIdx.x] + all[threadIdx.x + half];
    __syncthreads();
  }
  return all[0];
}

}  // namespace regccrf::cuda
