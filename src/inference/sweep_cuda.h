// One step of a sweep, by one block. Written once: the semiring says what sums and products are, and `emit` what becomes of
// a cell.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "inference/device_cuda.h"

namespace regccrf::cuda {

template <class Index>
struct Pair {
  Index x, y;
};

// The hot part of a DeviceSweep, on chip or not.
template <class Index>
struct SweepView {
  const SweepGroup* group;
  const Unit* unit;
  const std::int32_t* warp_begin;
  const Index* label;
  const Pair<Index>* source;
  const Pair<Index>* thin_source;
  const std::int32_t* extra_begin;
  const Index* extra_source;
  std::int32_t cells, extras, thin, first_thin, thin_slots, warps;
  bool two;

  __device__ SweepView(const DeviceSweep& sweep, const char* hot)
      : group(reinterpret_cast<const SweepGroup*>(hot + sweep.group_at)),
        unit(reinterpret_cast<const Unit*>(hot + sweep.unit_at)),
        warp_begin(reinterpret_cast<const std::int32_t*>(hot + sweep.warp_at)),
        label(reinterpret_cast<const Index*>(hot + sweep.label_at)),
        source(reinterpret_cast<const Pair<Index>*>(hot + sweep.source_at)),
        thin_source(reinterpret_cast<const Pair<Index>*>(hot + sweep.thin_source_at)),
        extra_begin(reinterpret_cast<const std::int32_t*>(hot + sweep.extra_begin_at)),
        extra_source(reinterpret_cast<const Index*>(hot + sweep.extra_source_at)),
        cells(sweep.cells),
        extras(sweep.extras),
        thin(sweep.thin),
        first_thin(sweep.first_thin),
        thin_slots(sweep.thin_slots),
        warps(sweep.warps),
        two(sweep.two != 0) {}
};

// Sums of products.
template <class P>
struct SumProduct {
  using Value = P;
  using Accumulator = P;
  static __device__ Accumulator zero() { return P{0}; }
  static __device__ void add(Accumulator& sum, P x, P gain, std::int32_t) { sum += x * gain; }
  static __device__ void merge(Accumulator& sum, Accumulator other) { sum += other; }
  static __device__ Accumulator exchange(Accumulator mine, std::int32_t lane_bit) {
    return __shfl_xor_sync(0xffffffffu, mine, lane_bit);
  }
};

// Maxima of sums, and which source gave them: twice the slot, plus one for its second source. The lower one wins a tie.
template <class P>
struct MaxPlus {
  using Value = P;
  struct Accumulator {
    P value;
    std::int32_t source;
  };
  static __device__ Accumulator zero() { return {-P{INFINITY}, 0}; }
  static __device__ void add(Accumulator& best, P x, P gain, std::int32_t source) {
    const P sum = x + gain;
    if (sum > best.value) best = {sum, source};
  }
  static __device__ void merge(Accumulator& best, Accumulator other) {
    if (other.value > best.value || (other.value == best.value && other.source < best.source)) best = other;
  }
  static __device__ Accumulator exchange(Accumulator mine, std::int32_t lane_bit) {
    return {__shfl_xor_sync(0xffffffffu, mine.value, lane_bit), __shfl_xor_sync(0xffffffffu, mine.source, lane_bit)};
  }
};

__device__ inline void load4(const float* from, float to[4]) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}
__device__ inline void load4(const double* from, double to[4]) {
  const double2 x = reinterpret_cast<const double2*>(from)[0], y = reinterpret_cast<const double2*>(from)[1];
  to[0] = x.x, to[1] = x.y, to[2] = y.x, to[3] = y.y;
}

// Some tiles of a group, each by kLanes threads that take its slots in turn; then they share out the sums.
template <class S, std::int32_t kLanes, bool kTwo, class Index, class Emit>
__device__ void thick_unit(const SweepView<Index>& view, const SweepGroup& group, std::int32_t first,
                           const typename S::Value* __restrict__ matrix, const typename S::Value* now, const Emit& emit) {
  using P = typename S::Value;
  const std::int32_t lane = threadIdx.x % 32, part = lane % kLanes;
  const std::int32_t item = first + lane / kLanes;
  const bool real = item < group.states * group.tiles;
  const std::int32_t tile = real ? item / group.states : 0, state = real ? item - tile * group.states : 0;
  const Pair<Index>* source = view.source + group.first_source + state * group.slots;
  const P* row = matrix + group.first_entry + tile * kTile;

  typename S::Accumulator sum[kTile];
#pragma unroll
  for (std::int32_t k = 0; k < kTile; ++k) sum[k] = S::zero();
#pragma unroll 4
  for (std::int32_t i = part; i < group.slots; i += kLanes) {
    const Pair<Index> from = source[i];
    P x = now[from.x];
    std::int32_t which = 2 * i;
    if constexpr (kTwo) {
      const P y = now[from.y];
      if constexpr (std::is_same_v<S, SumProduct<P>>) {
        x += y;
      } else if (y > x) {
        x = y;
        ++which;
      }
    }
    P gain[kTile];
    load4(row + i * group.width, gain);
    load4(row + i * group.width + 4, gain + 4);
#pragma unroll
    for (std::int32_t k = 0; k < kTile; ++k) S::add(sum[k], x, gain[k], which);
  }

  // Each round a thread keeps half of its sums and gives the other half to its partner.
  std::int32_t base = 0;
#pragma unroll
  for (std::int32_t bit = kLanes / 2, width = kTile / 2; bit > 0; bit /= 2, width /= 2) {
    const bool upper = (lane & bit) != 0;
#pragma unroll
    for (std::int32_t k = 0; k < kTile / 2; ++k) {
      if (k >= width) break;
      const typename S::Accumulator given = upper ? sum[k] : sum[k + width];
      typename S::Accumulator kept = upper ? sum[k + width] : sum[k];
      S::merge(kept, S::exchange(given, bit));
      sum[k] = kept;
    }
    if (upper) base += width;
  }
#pragma unroll
  for (std::int32_t k = 0; k < kTile / kLanes; ++k) {
    const std::int32_t o = tile * kTile + base + k;
    if (real && o < group.width) emit(group.first_cell + state * group.width + o, sum[k], source, 1);
  }
}

template <class S, class Index, class Emit>
__device__ void thin_unit(const SweepView<Index>& view, std::int32_t first, const typename S::Value* __restrict__ thin_matrix,
                          const typename S::Value* now, const Emit& emit) {
  const std::int32_t i = first + static_cast<std::int32_t>(threadIdx.x % 32);
  if (i >= view.thin) return;
  typename S::Accumulator sum = S::zero();
  for (std::int32_t s = 0; s < view.thin_slots; ++s) {
    const Pair<Index> from = view.thin_source[s * view.thin + i];
    const auto gain = thin_matrix[s * view.thin + i];
    S::add(sum, now[from.x], gain, 2 * s);
    if (view.two) S::add(sum, now[from.y], gain, 2 * s + 1);
  }
  emit(view.first_thin + i, sum, view.thin_source + i, view.thin);
}

// emit(cell, accumulator, sources, stride): source number s of the cell is sources[s / 2 · stride], its x or its y.
template <class S, class Index, class Emit>
__device__ void sweep_step(const SweepView<Index>& view, const typename S::Value* __restrict__ matrix,
                           const typename S::Value* __restrict__ thin_matrix, const typename S::Value* now, const Emit& emit) {
  const std::int32_t warp = threadIdx.x / 32;
  if (warp >= view.warps) return;
  for (std::int32_t u = view.warp_begin[warp]; u < view.warp_begin[warp + 1]; ++u) {
    const Unit unit = view.unit[u];
    if (unit.group < 0) {
      thin_unit<S>(view, unit.first, thin_matrix, now, emit);
      continue;
    }
    const SweepGroup group = view.group[unit.group];
    const auto thick = [&](auto lanes) {
      constexpr std::int32_t n = decltype(lanes)::value;
      if (view.two) {
        thick_unit<S, n, true>(view, group, unit.first, matrix, now, emit);
      } else {
        thick_unit<S, n, false>(view, group, unit.first, matrix, now, emit);
      }
    };
    switch (group.lanes) {
      case 1: thick(std::integral_constant<std::int32_t, 1>{}); break;
      case 2: thick(std::integral_constant<std::int32_t, 2>{}); break;
      case 4: thick(std::integral_constant<std::int32_t, 4>{}); break;
      default: thick(std::integral_constant<std::int32_t, 8>{}); break;
    }
  }
}

// Copies `bytes` (a multiple of 16) from global memory; the whole block takes part.
__device__ inline void copy_in(char* to, const char* from, std::int32_t bytes) {
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x) * 16; i < bytes; i += static_cast<std::int32_t>(blockDim.x) * 16) {
    *reinterpret_cast<int4*>(to + i) = *reinterpret_cast<const int4*>(from + i);
  }
}

}  // namespace regccrf::cuda
