// The join of small automata (combine_stream.cu).
#pragma once

#include "inference/cuda/expectation/combine.h"

namespace regccrf::cuda {

// Whether it can be done so, and there is more of it than one chunk for each processor: for that, many threads to a
// position are faster.
bool streams(const DeviceConstraint::Impl& c, const Batch& batch, const PassWork<float>& pass);
std::int32_t streamed_chunk(const DeviceConstraint::Impl& c, const Batch& batch, bool bigrams);  // positions of a block
void run_stream(const DeviceConstraint::Impl& c, const Batch& batch, const Kept<float>& kept,
                const PassWork<float>& pass, const JoinWork<float>& work, const Expectation& wanted,
                cudaStream_t stream);

}  // namespace regccrf::cuda
