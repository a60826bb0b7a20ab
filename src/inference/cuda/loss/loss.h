// A loss from what each sequence has on its own, by a block: of the last kernel of a call, or of one of its own.
#pragma once

#include "inference/cuda/device.h"
#include "inference/cuda/scores.h"

namespace regccrf::cuda {

__device__ inline bool fine(const Status& status) { return status.outcome == static_cast<std::int32_t>(Outcome::fine); }

__device__ inline bool is_error(Errors errors, const Status& status) {
  const auto outcome = static_cast<Outcome>(status.outcome);
  return errors == Errors::all ? outcome != Outcome::fine
                               : outcome == Outcome::bad_score || outcome == Outcome::bad_transition;
}

// Keeps the first error of this call, unless one of an earlier call is there. By one warp.
__device__ inline void keep_failure(std::int64_t size, const Loss& loss) {
  for (std::int64_t begin = 0; begin < size; begin += 32) {
    const std::int64_t i = begin + threadIdx.x;
    const unsigned found = __ballot_sync(kAllLanes, i < size && is_error(loss.errors, loss.saved.status[i]));
    if (!found) continue;
    const std::int64_t first = begin + __ffs(static_cast<int>(found)) - 1;
    const Status status = loss.saved.status[first];
    if (threadIdx.x == 0 && atomicCAS(&loss.failure->status.outcome, 0, status.outcome) == 0) {
      loss.failure->status = status;
      loss.failure->sequence = static_cast<std::int32_t>(loss.sequence_ids ? loss.sequence_ids[first] : first);
      loss.failure->operation = loss.operation;
    }
    return;
  }
}

__device__ inline double value_of(const Loss& loss, std::int64_t i) {
  if (loss.outside == Outside::keep || fine(loss.saved.status[i])) return loss.sign * loss.saved.value[i];
  return loss.outside == Outside::skip ? 0 : loss.sign * INFINITY;
}

// By the whole block.
template <int kThreads>
__device__ void reduce_values(std::int64_t size, const Loss& loss) {
  if (loss.failure && loss.errors != Errors::none && threadIdx.x < 32) keep_failure(size, loss);
  if (loss.reduction == Reduction::none) {
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads) write_number(loss.out, i, value_of(loss, i));
    if (threadIdx.x == 0) *loss.saved.scale = loss.sign;
    return;
  }
  Sum mine, parts;
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    const Status& status = loss.saved.status[i];
    const bool skipped = loss.outside == Outside::skip && !fine(status);
    mine.add(value_of(loss, i));
    parts.add(static_cast<double>(divisor_part(loss.reduction, skipped, status.length)));
  }
  const double sum = block_sum<kThreads>(mine), by = divisor_of(block_sum<kThreads>(parts));
  if (threadIdx.x != 0) return;
  write_number(loss.out, 0, sum / by);
  *loss.saved.scale = loss.sign / by;
}

}  // namespace regccrf::cuda
