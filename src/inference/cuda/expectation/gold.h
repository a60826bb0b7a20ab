// Whether gold is in the language: the set of states that it may be in, step by step. A state's stamp is the step in
// which it was last reached. A block follows one sequence; where the arcs fit on chip and there are few of each label,
// each of its warps does.
#pragma once

#include <algorithm>

#include "inference/cuda/expectation/expectation.h"
#include "inference/cuda/warp.h"

namespace regccrf::cuda {

// Bytes that a block needs on chip for so many sequences; 0: it cannot, and follows one from memory with `stamps`,
// [2 · Q].
inline int gold_bytes(const DeviceConstraint::Impl& c, std::int32_t sequences = 1) {
  const DeviceTopology& t = c.topology;
  const std::int64_t bytes =
      sequences * (8 * std::int64_t{t.Q}) + 4 * (std::int64_t{t.K} + 1) + 4 * std::int64_t{t.arcs} + 16;
  return t.Q < 65536 && bytes <= c.shared_bytes ? static_cast<int>(bytes) : 0;
}

// Sequences of a block of so many warps.
inline std::int32_t gold_together(const DeviceConstraint::Impl& c, std::int32_t warps) {
  constexpr std::int32_t few = 8 * 32;
  if (c.topology.arcs > few * c.topology.K) return 1;
  while (warps > 1 && gold_bytes(c, warps) == 0) warps /= 2;
  return std::max(warps, 1);
}

// Those who follow one sequence.
struct Block {
  static __device__ std::int32_t thread() { return static_cast<std::int32_t>(threadIdx.x); }
  static __device__ std::int32_t threads() { return static_cast<std::int32_t>(blockDim.x); }
  static __device__ bool any(bool x) { return __syncthreads_or(x); }
};
struct Warp {
  static __device__ std::int32_t thread() { return static_cast<std::int32_t>(threadIdx.x % 32); }
  static __device__ std::int32_t threads() { return 32; }
  static __device__ bool any(bool x) {
    __syncwarp();
    return __any_sync(kAllLanes, x);
  }
};

// Arcs by label, from states to states.
template <class State>
struct GoldArcs {
  const std::int32_t* begin;
  const State *from, *to;
};

// Leaves where gold of sequence b leaves the language: -1 nowhere, T if it stops where it may not.
template <class Team, class P, class State>
__device__ void follow_arcs(const ExpectationArgs<P>& a, const GoldArcs<State>& arcs, std::int64_t b,
                            std::int32_t* stamps) {
  const DeviceTopology& topology = a.topology;
  const std::int32_t *gold = a.trellis.scores.gold + b * a.batch.length, T = a.trellis.scores.length[b];
  const std::int32_t Q = topology.Q, thread = Team::thread(), threads = Team::threads();
  for (std::int32_t q = thread; q < 2 * Q; q += threads) stamps[q] = q == topology.start ? 0 : -1;
  Team::any(false);
  std::int32_t leaves = -1, ahead = T > 0 ? gold[0] : -1;
  for (std::int32_t t = 0; t < T && leaves < 0; ++t) {
    const std::int32_t label = ahead;
    ahead = t + 1 < T ? gold[t + 1] : -1;
    const std::int32_t* now = stamps + (t % 2) * Q;
    std::int32_t* next = stamps + ((t + 1) % 2) * Q;
    bool reached = false;
    const std::int32_t last = label >= 0 ? arcs.begin[label + 1] : 0;
    for (std::int32_t i = (label >= 0 ? arcs.begin[label] : 0) + thread; i < last; i += threads) {
      if (now[arcs.from[i]] != t) continue;
      next[arcs.to[i]] = t + 1;
      reached = true;
    }
    if (!Team::any(reached)) leaves = t;
  }
  if (leaves < 0) {
    bool accepted = false;
    for (std::int32_t q = thread; q < Q; q += threads)
      accepted |= stamps[(T % 2) * Q + q] == T && topology.accepting[q];
    if (!Team::any(accepted)) leaves = T;
  }
  if (thread == 0) a.trellis.leaves[b] = leaves;
}

// The arcs on chip, behind the stamps of `sequences`. The whole block takes part.
__device__ inline GoldArcs<std::uint16_t> load_arcs(const DeviceTopology& topology, char* shared,
                                                    std::int32_t sequences) {
  auto* begin = reinterpret_cast<std::int32_t*>(shared) + sequences * 2 * topology.Q;
  auto* from = reinterpret_cast<std::uint16_t*>(begin + topology.K + 1);
  std::uint16_t* to = from + topology.arcs;
  for (std::int32_t k = threadIdx.x; k <= topology.K; k += blockDim.x) begin[k] = topology.arc_begin[k];
  for (std::int32_t i = threadIdx.x; i < topology.arcs; i += blockDim.x) {
    from[i] = static_cast<std::uint16_t>(topology.arc_from[i]);
    to[i] = static_cast<std::uint16_t>(topology.arc_to[i]);
  }
  __syncthreads();
  return {begin, from, to};
}

// The first blocks of a combine, which follow gold; none behind a scan, which has done so.
struct GoldBlocks {
  std::uint32_t count;
  std::int32_t together;  // sequences of a block
};
// Whether the block is one of them; it is done then. `shared`: for stamps and arcs, unless stamps are in memory.
template <class P>
__device__ bool follows_gold(const ExpectationArgs<P>& a, const GoldBlocks& blocks, char* shared) {
  if (blockIdx.x >= blocks.count) return false;
  const DeviceTopology& topology = a.topology;
  const auto warp = static_cast<std::int32_t>(threadIdx.x / 32);
  const std::int64_t b = std::int64_t{blockIdx.x} * blocks.together;
  if (a.work.stamps) {
    const GoldArcs<std::int32_t> arcs{topology.arc_begin, topology.arc_from, topology.arc_to};
    follow_arcs<Block>(a, arcs, b, a.work.stamps + b * 2 * topology.Q);
  } else {
    const GoldArcs<std::uint16_t> arcs = load_arcs(topology, shared, blocks.together);
    auto* stamps = reinterpret_cast<std::int32_t*>(shared);
    if (blocks.together == 1) {
      follow_arcs<Block>(a, arcs, b, stamps);
    } else if (warp < blocks.together && b + warp < a.batch.size) {
      follow_arcs<Warp>(a, arcs, b + warp, stamps + warp * 2 * topology.Q);
    }
  }
  wait_for_prior_kernel();
  return true;
}

}  // namespace regccrf::cuda
