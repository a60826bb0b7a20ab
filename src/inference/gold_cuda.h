// Whether gold is in the language: which states it may be in, step by step, by one block a sequence. A state's stamp is
// the step in which it was last reached. Where there is room, the arcs lie on chip.
#pragma once

#include "inference/device_cuda.h"

namespace regccrf::cuda {

// Bytes that a block needs on chip; 0: it cannot, and follows from memory with `stamps`, [2 · Q].
inline int gold_bytes(const DeviceConstraint::Impl& c) {
  const DeviceTopology& t = c.topology;
  const std::int64_t bytes = 8 * std::int64_t{t.Q} + 4 * (std::int64_t{t.K} + 1) + 4 * std::int64_t{t.arcs} + 16;
  return t.Q < 65536 && bytes <= c.shared_bytes ? static_cast<int>(bytes) : 0;
}

template <class State>
__device__ void follow_arcs(const DeviceTopology& topology, const std::int32_t* gold, std::int32_t T,
                            std::int32_t* stamps, const std::int32_t* arc_begin, const State* from, const State* to,
                            std::int32_t* leaves_at) {
  const std::int32_t Q = topology.Q;
  for (std::int32_t q = threadIdx.x; q < 2 * Q; q += blockDim.x) stamps[q] = q == topology.start ? 0 : -1;
  __syncthreads();
  std::int32_t leaves = -1, ahead = T > 0 ? gold[0] : -1;
  for (std::int32_t t = 0; t < T && leaves < 0; ++t) {
    const std::int32_t label = ahead;
    ahead = t + 1 < T ? gold[t + 1] : -1;
    const std::int32_t* now = stamps + (t % 2) * Q;
    std::int32_t* next = stamps + ((t + 1) % 2) * Q;
    bool reached = false;
    const std::int32_t last = label >= 0 ? arc_begin[label + 1] : 0;
    for (std::int32_t i = (label >= 0 ? arc_begin[label] : 0) + static_cast<std::int32_t>(threadIdx.x); i < last;
         i += blockDim.x) {
      if (now[from[i]] != t) continue;
      next[to[i]] = t + 1;
      reached = true;
    }
    if (!__syncthreads_or(reached)) leaves = t;
  }
  if (leaves < 0) {
    bool accepted = false;
    for (std::int32_t q = threadIdx.x; q < Q; q += blockDim.x)
      accepted |= stamps[(T % 2) * Q + q] == T && topology.accepting[q];
    if (!__syncthreads_or(accepted)) leaves = T;
  }
  if (threadIdx.x == 0) *leaves_at = leaves;
}

// Where gold leaves the language goes to `leaves_at`: -1 nowhere, T if it stops where it may not. `stamps` null: on
// chip, in `shared`.
__device__ inline void follow_gold(const DeviceTopology& topology, const std::int32_t* gold, std::int32_t T,
                                   char* shared, std::int32_t* stamps, std::int32_t* leaves_at) {
  if (stamps) {
    follow_arcs(topology, gold, T, stamps, topology.arc_begin, topology.arc_from, topology.arc_to, leaves_at);
    return;
  }
  stamps = reinterpret_cast<std::int32_t*>(shared);
  std::int32_t* arc_begin = stamps + 2 * topology.Q;
  auto* from = reinterpret_cast<std::uint16_t*>(arc_begin + topology.K + 1);
  std::uint16_t* to = from + topology.arcs;
  for (std::int32_t k = threadIdx.x; k <= topology.K; k += blockDim.x) arc_begin[k] = topology.arc_begin[k];
  for (std::int32_t i = threadIdx.x; i < topology.arcs; i += blockDim.x) {
    from[i] = static_cast<std::uint16_t>(topology.arc_from[i]);
    to[i] = static_cast<std::uint16_t>(topology.arc_to[i]);
  }
  follow_arcs(topology, gold, T, stamps, arc_begin, from, to, leaves_at);
}

}  // namespace regccrf::cuda
