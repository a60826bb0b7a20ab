// Sequences done in wide arithmetic (numerics/wide.h) on the device: those that a fast pass could not be trusted with,
// and samples.
#pragma once

#include <algorithm>
#include <cmath>

#include "inference/cuda/bounds.h"
#include "inference/cuda/device.h"
#include "inference/cuda/scores.h"
#include "inference/numerics/wide.h"

namespace regccrf::cuda {

// What a wide pass reads.
struct WideScores {
  DeviceTopology topology;
  Batch batch;
  Batch gains;                 // what paths gain, in the place of scores; absent: nothing
  double factor = 1;           // of the scores
  const std::int32_t* length;  // [B] as Prepared has them
  const std::int64_t* row;     // [B, T]
};

// So many numbers that what comes behind them is aligned to 16 bytes.
__host__ __device__ constexpr std::int64_t even(std::int64_t count) { return count + count % 2; }

// Value: what a wide pass has of a node or an arrival. One slot serves one block; blocks take sequences in turn. Alpha
// is kept for one segment of positions at a time, and at the first position of every segment.
template <class Value>
struct WideMemory {
  std::int32_t slots, segment, segments;
  Wide* model;      // [slots, K · K + 3 K] exp of transitions, start, end, and the emissions of a position
  Value* saved;     // [slots, even(segment · nodes)] alpha
  Value* firsts;    // [slots, even(segments · nodes)]
  Value* arrivals;  // [slots, 2, arrivals] forward and backward
  Value* nodes;     // [slots, 2, nodes] backward: of what comes after; with its own emission
  double* bigrams;  // [slots, rounds of bigrams]
};

// `recalls`: passes go back along alpha. `other_bytes`: that the caller allocates for each slot.
template <class Value>
WideMemory<Value> allocate_wide(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch, bool recalls,
                                std::int64_t other_bytes = 0) {
  constexpr std::int64_t slot_bytes = std::int64_t{1} << 24, most_bytes = std::int64_t{1} << 27;
  const std::int64_t T = std::max<std::int64_t>(batch.length, 1), K = c.topology.K, N = c.topology.nodes,
                     M = c.topology.arrivals, rounds = c.topology.bigrams.rounds, unit = sizeof(Value);
  const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(T))));
  WideMemory<Value> memory{};
  memory.segment =
      static_cast<std::int32_t>(recalls ? std::max<std::int64_t>(T * N * unit <= slot_bytes ? T : root, 2) : 2);
  memory.segments = static_cast<std::int32_t>(recalls ? ceil_div(T, memory.segment) : 0);
  const std::int64_t values = (memory.segment + memory.segments + 2) * N + 2 * M, model = K * K + 3 * K,
                     bytes = values * unit + model * std::int64_t{sizeof(Wide)} + 8 * rounds + other_bytes;
  memory.slots = static_cast<std::int32_t>(
      std::min<std::int64_t>({std::max<std::int64_t>(most_bytes / bytes, 1), batch.size, c.processors}));
  const auto take = [&]<class Number>(Number*& to, std::int64_t count) {
    to = arena.allocate<Number>(std::int64_t{memory.slots * count});
  };
  take(memory.model, model);
  take(memory.saved, even(memory.segment * N));
  take(memory.firsts, even(memory.segments * N));
  take(memory.arrivals, 2 * M);
  take(memory.nodes, 2 * N);
  take(memory.bigrams, rounds);
  return memory;
}

// Does again what is untrusted.
struct WideArgs {
  WideScores scores;
  Expectation wanted;
  const std::int32_t* trust;  // [B] a Trust
  WideMemory<Wide> memory;
  Loss loss;                   // made of all values in the end; without `out`: none
  std::uint32_t* blocks_done;  // [1] zero, for the blocks to count themselves
};
void recompute_wide(const DeviceConstraint::Impl& constraint, const WideArgs& args, cudaStream_t stream);

}  // namespace regccrf::cuda
