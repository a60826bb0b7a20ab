// Sequences done in wide arithmetic (wide.h) on the device: those that a fast pass could not be trusted with, and
// samples.
#pragma once

#include "inference/device_cuda.h"
#include "inference/wide.h"

namespace regccrf::cuda {

// One slot serves one block; blocks take sequences in turn. alpha is kept for one segment of positions at a time, and
// at the first position of every segment.
struct WideWork {
  std::int32_t slots, segment, segments;
  std::int64_t slot_numbers;  // Wide numbers of a slot
  Wide* numbers;              // [slots, slot_numbers]
  double* bigrams;            // [slots, K, K] or null
};
WideWork cut_wide(Cutter& cutter, const DeviceConstraint::Impl& constraint, const Batch& batch, bool bigrams);

struct Present {
  const std::int32_t* length;  // [B]
  const std::int64_t* row;     // [B, T]
  const std::int32_t* flag;    // [B] 0: fine, 1: do it again, 2: the counts are zeros
};
void again_wide(const DeviceConstraint::Impl& constraint, const Batch& batch, const Expectation& wanted,
                const Present& present, const WideWork& work, cudaStream_t stream);
void sample_wide(const DeviceConstraint::Impl& constraint, const Batch& batch, const Samples& samples,
                 const Present& present, const WideWork& work, cudaStream_t stream);

}  // namespace regccrf::cuda
