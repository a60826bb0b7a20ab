// What the two ways to find best paths on a device share (viterbi.cu, viterbi_integer.cu): two blocks walk
// towards each other from the ends of a sequence, and the best path crosses where they meet.
#pragma once

#include "inference/cuda/expectation/expectation.h"
#include "inference/cuda/prepare.h"
#include "inference/cuda/step/step.h"

namespace regccrf::cuda {

// How far the score of a path that is taken may lie below the best, relative to it: half of what float32 promises.
constexpr double kTolerance = 0.5e-5;

// The steps from the begin of a sequence of T positions, not 0, and from its end, to where its two halves meet.
struct Halves {
  std::int32_t steps[2];
  __host__ __device__ explicit Halves(std::int32_t T) : steps{(T - 1) / 2, T / 2} {}
};

// One sequence's answer, by a block.
struct Answer {
  const Best& best;
  const Batch& batch;
  std::int64_t b;
  std::int32_t T, K;
  std::int32_t* path;  // [T]

  __device__ Answer(const Best& best_, const Batch& batch_, std::int64_t b_, std::int32_t T_, std::int32_t K_)
      : best(best_), batch(batch_), b(b_), T(T_), K(K_), path(best_.labels + b_ * batch_.length) {}

  // No labels from position `first` on.
  __device__ void clear_path(std::int64_t first) const {
    for (std::int64_t t = first + threadIdx.x; t < batch.length; t += blockDim.x) path[t] = -1;
  }
  // The status but for Outcome::impossible, by a warp.
  template <class Score>
  __device__ void write_status(const Prepared<Score>& scores) const {
    const std::int32_t lane = threadIdx.x % 32;
    const bool bad = __any_sync(kAllLanes, sees_bad_score(batch, scores, b, T, lane, 32));
    if (lane == 0) best.status[b] = status_of(batch, scores, b, T, K, bad);
  }
  // `empty`: whether a sequence of no positions is legal.
  __device__ void no_path(std::int32_t empty) const {
    if (threadIdx.x != 0) return;
    const bool fine = T == 0 && empty;
    best.score[b] = fine ? 0 : -INFINITY;
    std::int32_t& outcome = best.status[b].outcome;
    if (!fine && outcome == 0) outcome = static_cast<std::int32_t>(Outcome::impossible);
  }
  // Once the path is written. `row`: as Prepared has it.
  template <int kThreads>
  __device__ void write_score(const std::int64_t* row) const {
    __syncthreads();
    const Sum mine = path_score(batch, K, T, row + b * batch.length, [&](std::int32_t t) { return path[t]; });
    const double sum = block_sum<kThreads>(mine, T);
    if (threadIdx.x == 0) best.score[b] = sum;
  }
};

// viterbi_integer.cu: layouts in registers, in whole numbers. Sets `redo`, [B], to 1 for what needs double.
struct IntegerMemory {
  std::uint32_t* saved[2];  // [B, steps, cells] forward and backward: the first steps, if not all have room on chip
};
bool integer_fits(const DeviceConstraint::Impl& c, const Batch& batch);
IntegerMemory allocate_integer(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch);
void run_integer(const DeviceConstraint::Impl& c, const Batch& batch, const Best& best, const Prepared<float>& scores,
                 const IntegerMemory& work, std::int32_t* redo, cudaStream_t stream);

}  // namespace regccrf::cuda
