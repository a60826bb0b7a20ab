// Losses on a device, by address. 0: not there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regccrf::python {

using Address = std::uintptr_t;

// Losses of batches of one shape, and how what a loss leaves for its gradients lies in one piece of memory, which
// begins with its scale [1] float64: how much each sequence counts. Types: cuda::Type's numbers. `width`: of
// `type`, in bytes.
struct Losses {
  std::int64_t size, length, batch_stride, time_stride;
  std::int32_t labels;
  int emissions_type, type;
  std::size_t status = 16;      // in bytes, where these begin: [B] cuda::Status
  std::size_t value;            // [B] float64
  std::size_t counts, bigrams;  // of `type`, shaped as the emissions, and [B, K, K]; 0: not wanted
  std::size_t end;

  Losses(std::int64_t first, std::int64_t second, std::int64_t K, int of_emissions, int of_others, std::size_t width,
         bool batch_first, bool want_counts, bool want_bigrams)
      : size(batch_first ? first : second),
        length(batch_first ? second : first),
        batch_stride(batch_first ? second : 1),
        time_stride(batch_first ? 1 : second),
        labels(static_cast<std::int32_t>(K)),
        emissions_type(of_emissions),
        type(of_others) {
    const auto B = static_cast<std::size_t>(size), rows = static_cast<std::size_t>(first * second),
               labels_here = static_cast<std::size_t>(K);
    value = status + 16 * B;
    counts = aligned(value + 8 * B);
    bigrams = counts + (want_counts ? aligned(rows * labels_here * width) : 0);
    end = bigrams + (want_bigrams ? B * labels_here * labels_here * width : 0);
    if (!want_counts || rows == 0) counts = 0;
    if (!want_bigrams) bigrams = 0;
  }
  static std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
};

// One of them, in the words of regccrf/cuda.h: the batch's scores, a cuda::Loss, and memory.
struct LossCall {
  Address emissions = 0, transitions = 0, start = 0, end = 0, mask = 0, gold = 0;
  bool entropy = false;
  double sign = 1;
  int reduction = 0, left_out = 0, type = 0, errors = 0;
  std::int32_t operation = 0;
  Address failure = 0, numbers = 0, out = 0, kept = 0, memory = 0;
  std::size_t bytes = 0;
  Address stream = 0;
};

// Its gradients, a cuda::Weighing.
struct WeighCall {
  Address weights = 0;
  std::int64_t stride = 0;
  int weights_type = 0;
  Address kept = 0, mask = 0, emissions = 0, transitions = 0, start = 0, end = 0, stream = 0;
};

}  // namespace regccrf::python
