// The first kernel of every operation on scores: which positions are present, and scores as the passes want them.
#pragma once

#include "inference/cuda/device.h"
#include "inference/cuda/scores.h"

namespace regccrf::cuda {

// A call's scores on the device, in the precision P of the pass. Rows are positions, absent ones left out.
template <class P>
struct Prepared {
  std::int32_t* length;        // [B]
  std::int64_t* row;           // [B, T] where a position lies in the caller's arrays
  std::int32_t* gold;          // [B, T] its gold label, -1 for what is none
  P* emissions;                // [B, T, K + 1] exp(h − shift), or h itself; the last is the semiring's zero.
                               // 0 for -inf alone: see bounds.h
  double* shift;               // [B, T] the row's largest; NaN where one of its scores is NaN or +inf
  P *matrix[2], *sparse[2];    // the layouts' entries of g, and where those of sparse outs begin: forward no less than
                               // the truth, backward no more
  P *start, *end;              // [K] no less
  P* floor;                    // [1] of alpha
  double* shifts;              // [3] the largest of transitions, start, end: subtracted for probabilities
  std::uint32_t* blocks_done;  // [B] zeros, for a sequence's blocks to count themselves
  std::int32_t* bad;           // [1] not 0: transitions, start or end hold NaN or +inf
};

enum class Scale { probability, log };

// `both`: also the backward layout's matrices.
template <class P>
Prepared<P> allocate_prepared(Arena& arena, const DeviceConstraint::Impl& constraint, const Batch& batch, bool both);

template <class P>
void prepare(const DeviceConstraint::Impl& constraint, const Batch& batch, const Prepared<P>& prepared, Scale scale,
             const std::int64_t* gold, cudaStream_t stream);

// Whether a bad score is at position `thread` of sequence b, of length T, or every `threads`-th behind it.
template <class P>
__device__ bool sees_bad_score(const Batch& batch, const Prepared<P>& scores, std::int64_t b, std::int32_t T,
                               std::int32_t thread, std::int32_t threads) {
  const double* shift = scores.shift + b * batch.length;
  bool bad = false;
#pragma unroll 4
  for (std::int32_t t = thread; t < T; t += threads) bad |= isnan(shift[t]);
  return bad;
}

// What the scores say of that sequence, by one thread. `bad`: whether some thread has seen a bad score.
template <class P>
__device__ Status status_of(const Batch& batch, const Prepared<P>& scores, std::int64_t b, std::int32_t T,
                            std::int32_t K, bool bad) {
  Status status{static_cast<std::int32_t>(Outcome::fine), 0, 0, T};
  if (bad) {
    status.outcome = static_cast<std::int32_t>(Outcome::bad_score);
    while (!isnan(scores.shift[b * batch.length + status.position])) ++status.position;
    const std::int64_t row = scores.row[b * batch.length + status.position] * K;
    while (score_at(batch.emissions, row + status.label) < INFINITY) ++status.label;
  }
  if (*scores.bad) status.outcome = static_cast<std::int32_t>(Outcome::bad_transition);
  return status;
}
// The same by a whole block, to all its threads.
template <class P>
__device__ Status block_status(const Batch& batch, const Prepared<P>& scores, std::int64_t b, std::int32_t T,
                               std::int32_t K) {
  const bool bad = sees_bad_score(batch, scores, b, T, static_cast<std::int32_t>(threadIdx.x),
                                  static_cast<std::int32_t>(blockDim.x));
  return status_of(batch, scores, b, T, K, __syncthreads_or(bad) != 0);
}

}  // namespace regccrf::cuda
