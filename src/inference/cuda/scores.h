// Reading the caller's scores in a kernel, one at a time, and sums of them that lose nothing.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "inference/cuda/warp.h"
#include "inference/numerics/limits.h"
#include "inference/numerics/path_score.h"
#include "inference/numerics/sum.h"
#include "regccrf/cuda.h"

namespace regccrf::cuda {

// act(pointer to the numbers), in their type.
template <class Act>
__device__ auto with_numbers(const ConstArray& numbers, const Act& act) {
  switch (numbers.type) {
    case Type::f16:
      return act(static_cast<const __half*>(numbers.data));
    case Type::bf16:
      return act(static_cast<const __nv_bfloat16*>(numbers.data));
    case Type::f32:
      return act(static_cast<const float*>(numbers.data));
    default:
      return act(static_cast<const double*>(numbers.data));
  }
}
template <class T>
__device__ double as_double(T x) {
  if constexpr (sizeof(T) == 8) return x;
  return static_cast<double>(static_cast<float>(x));
}
__device__ inline double read_number(const ConstArray& numbers, std::int64_t i) {
  return with_numbers(numbers, [&](const auto* x) { return as_double(x[i]); });
}
__device__ inline double score_at(const ConstArray& scores, std::int64_t i) {
  return bounded_score(read_number(scores, i));
}
// 0 where there are none.
__device__ inline double optional_score_at(const ConstArray& scores, std::int64_t i) {
  return scores ? score_at(scores, i) : 0;
}

__device__ inline void write_number(const Array& numbers, std::int64_t i, double x) {
  switch (numbers.type) {
    case Type::f16:
      static_cast<__half*>(numbers.data)[i] = __double2half(x);
      break;
    case Type::bf16:
      static_cast<__nv_bfloat16*>(numbers.data)[i] = __double2bfloat16(x);
      break;
    case Type::f32:
      static_cast<float*>(numbers.data)[i] = static_cast<float>(x);
      break;
    default:
      static_cast<double*>(numbers.data)[i] = x;
  }
}

// Zeros, by a whole block, for sequence b of length T: at its rows of `emissions`, [rows, K], and in its part of
// `transitions`, [B, K, K]; either may be absent. `row`: [T]
__device__ inline void zero_counts(std::int32_t K, std::int64_t b, std::int32_t T, const std::int64_t* row,
                                   const Array& emissions, const Array& transitions) {
  for (std::int64_t i = threadIdx.x; emissions && i < std::int64_t{T} * K; i += blockDim.x)
    write_number(emissions, row[i / K] * K + i % K, 0);
  for (std::int64_t i = threadIdx.x; transitions && i < std::int64_t{K} * K; i += blockDim.x)
    write_number(transitions, b * K * K + i, 0);
}

// Sums over the first `threads` threads, some at once, to all threads. `kThreads`: of the block, at most.
template <int kThreads, int kCount>
__device__ void block_sums(Sum (&mine)[kCount], std::int32_t threads = kThreads) {
  __shared__ Sum sums[kCount][kThreads / 32];
  for (int bit = 16; bit > 0; bit /= 2) {
#pragma unroll
    for (Sum& x : mine) {
      const double sum = __shfl_xor_sync(kAllLanes, x.sum, bit), rest = __shfl_xor_sync(kAllLanes, x.rest, bit);
      x.add(Sum{sum, rest});
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kCount; ++k)
    if (threadIdx.x % 32 == 0) sums[k][threadIdx.x / 32] = mine[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kCount; ++k) mine[k] = Sum{};
#pragma unroll 1
  for (std::int32_t i = 0; 32 * i < min(threads, static_cast<std::int32_t>(blockDim.x)); ++i) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      mine[k].add(sums[k][i]);
    }
  }
}
template <int kThreads>
__device__ Sum block_exact(Sum mine, std::int32_t threads = kThreads) {
  Sum sums[1] = {mine};
  block_sums<kThreads>(sums, threads);
  return sums[0];
}
template <int kThreads>
__device__ double block_sum(Sum mine, std::int32_t threads = kThreads) {
  return block_exact<kThreads>(mine, threads).value();
}

// What numerics/path_score.h adds up, of a batch in device memory. `row`: [T] of the emissions. `kScores`: numbers are
// scores, and bounded. Labels that are none add nothing.
template <bool kScores>
struct PathTerms {
  const Batch& batch;
  std::int64_t K;
  const std::int64_t* row;

  __device__ bool is_label(std::int64_t a) const { return a >= 0 && a < K; }
  __device__ double at(const ConstArray& numbers, std::int64_t i) const {
    return kScores ? score_at(numbers, i) : read_number(numbers, i);
  }
  __device__ double emission(std::int64_t t, std::int64_t a) const {
    return is_label(a) ? at(batch.emissions, row[t] * K + a) : 0;
  }
  __device__ double transition(std::int64_t a, std::int64_t b) const {
    return is_label(a) && is_label(b) ? at(batch.transitions, a * K + b) : 0;
  }
  __device__ double start(std::int64_t a) const { return batch.start && is_label(a) ? at(batch.start, a) : 0; }
  __device__ double end(std::int64_t a) const { return batch.end && is_label(a) ? at(batch.end, a) : 0; }
};

// This thread's share of a path's score, of what positions begin … end - 1 add. `label(t)`: of position t.
template <bool kScores = true, class LabelAt>
__device__ Sum path_score(const Batch& batch, std::int32_t K, std::int32_t T, const std::int64_t* row,
                          const LabelAt& label, std::int32_t begin = 0, std::int32_t end = INT32_MAX) {
  const PathTerms<kScores> terms{batch, K, row};
  Sum sum;
#pragma unroll 1
  for (std::int32_t t = begin + static_cast<std::int32_t>(threadIdx.x); t < min(end, T); t += blockDim.x)
    add_position(
        terms, T, t, [&](std::int64_t at) { return static_cast<std::int64_t>(label(static_cast<std::int32_t>(at))); },
        sum);
  return sum;
}

}  // namespace regccrf::cuda
