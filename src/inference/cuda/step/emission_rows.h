// The emissions that a block's next steps need, in shared memory.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "inference/cuda/device.h"

namespace regccrf::cuda {

// The emissions of some steps, staged in shared memory. read(score, position): what is done to a score on the way.
template <class P, bool kBack, class Score, class Read>
class EmissionRows {
 public:
  // `room`: for `count` rows of K + 1 numbers.
  __device__ EmissionRows(P* room, std::int32_t count, const Score* emissions, std::int32_t K, std::int32_t T,
                          const Read& read)
      : room_(room), emissions_(emissions), count_(count), width_(K + 1), T_(T), read_(read) {}
  // Copies the row of step n and those behind it; the block must not be reading rows, and needs a barrier afterwards.
  __device__ void stage(std::int32_t n) {
    const std::int32_t rows = min(count_, T_ - n), first = kBack ? T_ - n - rows : n;
    end_ = n + rows;
    next_ = room_ + (kBack ? rows - 1 : 0) * width_;
    const Score* from = emissions_ + std::int64_t{first} * width_;
#pragma unroll 4
    for (std::int32_t i = threadIdx.x; i < rows * width_; i += blockDim.x)
      room_[i] = read_(from[i], first + i / width_);
  }
  __device__ bool staged(std::int32_t n) const { return n < end_; }
  // The row of each step in turn.
  __device__ const P* next() {
    const P* row = next_;
    next_ += kBack ? -width_ : width_;
    return row;
  }

 private:
  P* room_;
  const P* next_ = nullptr;
  const Score* emissions_;
  std::int32_t count_, width_, T_, end_ = 0;
  const Read read_;
};

// How many of T rows a block keeps on chip: few enough to leave room for cells, and for other blocks.
template <class P>
std::int32_t rows_in_shared(const DeviceConstraint::Impl& c, std::int64_t T) {
  const std::int64_t bytes = std::min<std::int64_t>(24576, c.shared_bytes / 2),
                     row = (std::int64_t{c.topology.K} + 1) * std::int64_t{sizeof(P)};
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(bytes / row, 1, std::max<std::int64_t>(T, 1)));
}

// Error where not even the rows that a block must have find room: `bytes` on chip, for scores of K labels.
inline void check_rows(const DeviceConstraint::Impl& c, std::int64_t bytes) {
  if (bytes <= c.shared_bytes) return;
  throw Error("[cuda] " + std::to_string(c.topology.K) + " labels: their scores at a position take " +
              std::to_string(bytes) + " bytes on chip, and a block of this device has " +
              std::to_string(c.shared_bytes) + ": use the CPU");
}

}  // namespace regccrf::cuda
