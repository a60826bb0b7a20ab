// One step of a sweep, by one block. Written once: the semiring says what sums and products are, and `emit` what
// becomes of a cell.
#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "inference/device_cuda.h"

namespace regccrf::cuda {

// Where a block keeps what a step reads: in memory, on chip, or on chip with the matrices in registers.
enum class Keep { memory, chip, registers };

inline int aligned(std::int64_t bytes) { return static_cast<int>((bytes + 15) / 16 * 16); }

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

  __device__ SweepView(const DeviceSweep& sweep, const char* hot, int resident)
      : group(reinterpret_cast<const SweepGroup*>(hot + sweep.group_at)),
        unit(reinterpret_cast<const Unit*>(hot + sweep.unit_at[resident])),
        warp_begin(reinterpret_cast<const std::int32_t*>(hot + sweep.warp_at[resident])),
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
        warps(sweep.warps[resident]),
        two(sweep.two != 0) {}
};

// Sums of products.
template <class P>
struct SumProduct {
  using Value = P;
  static __device__ P zero() { return P{0}; }
  static __device__ P plus(P x, P y) { return x + y; }
  static __device__ P plus_times(P sum, P x, P gain) { return sum + x * gain; }
};

// Maxima of sums.
template <class P>
struct MaxPlus {
  using Value = P;
  static __device__ P zero() { return -P{INFINITY}; }
  static __device__ P plus(P x, P y) { return max(x, y); }
  static __device__ P plus_times(P best, P x, P gain) { return max(best, x + gain); }
};

template <class P>
__device__ std::uint32_t bytes_of(std::int32_t count) {
  return static_cast<std::uint32_t>(count) * static_cast<std::uint32_t>(sizeof(P));
}
template <class P>
__device__ P value_of(const P* array, std::uint32_t place) {
  return *reinterpret_cast<const P*>(reinterpret_cast<const char*>(array) + place);
}
template <class P>
__device__ void put(P* array, std::uint32_t place, P value) {
  *reinterpret_cast<P*>(reinterpret_cast<char*>(array) + place) = value;
}

__device__ inline void load4(const float* from, float to[4]) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}
__device__ inline void load4(const double* from, double to[4]) {
  const double2 x = reinterpret_cast<const double2*>(from)[0], y = reinterpret_cast<const double2*>(from)[1];
  to[0] = x.x, to[1] = x.y, to[2] = y.x, to[3] = y.y;
}

// Which tile a thread works on, and which part of its slots: neighbouring threads have neighbouring tiles, which mostly
// share their entries of g.
template <std::int32_t kLanes>
struct TileOf {
  std::int32_t part, tile, state;
  bool real;
  // The cells that this thread has after sharing out, one every group.states.
  __device__ std::int32_t first_cell(const SweepGroup& group) const {
    return group.first_cell + (tile * kTile + part * (kTile / kLanes)) * group.states + state;
  }
  __device__ std::int32_t own_cells(const SweepGroup& group) const {
    return real ? min(group.width - tile * kTile - part * (kTile / kLanes), kTile / kLanes) : 0;
  }
  __device__ TileOf(const SweepGroup& group, std::int32_t first) {
    constexpr std::int32_t a_time = 32 / kLanes;
    const std::int32_t lane = threadIdx.x % 32, item = first + lane % a_time;
    part = lane / a_time;
    real = item < group.states * group.tiles;
    tile = real ? item / group.states : 0;
    state = real ? item - tile * group.states : 0;
  }
};

// The lanes of a tile share out its sums: each round a thread keeps half of them and gives the other half to its
// partner. In the end the thread of part p has those of the cells from p · kTile / kLanes on, at the front of `sum`.
template <class S, std::int32_t kLanes>
__device__ void share_out(std::int32_t part, typename S::Value (&sum)[kTile]) {
#pragma unroll
  for (std::int32_t bit = kLanes / 2, width = kTile / 2; bit > 0; bit /= 2, width /= 2) {
    const bool upper = (part & bit) != 0;
#pragma unroll
    for (std::int32_t k = 0; k < kTile / 2; ++k) {
      if (k >= width) break;
      const auto given = upper ? sum[k] : sum[k + width], kept = upper ? sum[k + width] : sum[k];
      sum[k] = S::plus(kept, __shfl_xor_sync(0xffffffffu, given, bit * (32 / kLanes)));
    }
  }
}

template <class Do>
__device__ void by_lanes(std::int32_t lanes, const Do& act) {
  switch (lanes) {
    case 1:
      act(std::integral_constant<std::int32_t, 1>{});
      break;
    case 2:
      act(std::integral_constant<std::int32_t, 2>{});
      break;
    case 4:
      act(std::integral_constant<std::int32_t, 4>{});
      break;
    default:
      act(std::integral_constant<std::int32_t, 8>{});
      break;
  }
}

// Some tiles of a group, each by kLanes threads that take its slots in turn.
template <class S, std::int32_t kLanes, bool kTwo, class Index, class Emit>
__device__ void thick_unit(const SweepView<Index>& view, const SweepGroup& group, std::int32_t first,
                           const typename S::Value* __restrict__ matrix, const typename S::Value* now,
                           const Emit& emit) {
  using P = typename S::Value;
  const TileOf<kLanes> at(group, first);
  const Pair<Index>* source = view.source + group.first_source + at.state * group.slots;
  const auto* row = matrix + group.first_entry + at.tile * kTile;
  typename S::Value sum[kTile];
#pragma unroll
  for (std::int32_t k = 0; k < kTile; ++k) sum[k] = S::zero();
#pragma unroll 4
  for (std::int32_t i = at.part; i < group.slots; i += kLanes) {
    auto x = now[source[i].x];
    if constexpr (kTwo) x = S::plus(x, now[source[i].y]);
    typename S::Value gain[kTile];
    load4(row + i * group.width, gain);
    load4(row + i * group.width + 4, gain + 4);
#pragma unroll
    for (std::int32_t k = 0; k < kTile; ++k) sum[k] = S::plus_times(sum[k], x, gain[k]);
  }
  share_out<S, kLanes>(at.part, sum);
#pragma unroll
  for (std::int32_t k = 0; k < kTile / kLanes; ++k) {
    const std::int32_t cell = at.first_cell(group) + k * group.states;
    if (k < at.own_cells(group)) emit(bytes_of<P>(cell), bytes_of<P>(view.label[cell]), sum[k]);
  }
}

template <class S, class Index, class Emit>
__device__ void thin_unit(const SweepView<Index>& view, std::int32_t first,
                          const typename S::Value* __restrict__ thin_matrix, const typename S::Value* now,
                          const Emit& emit) {
  const std::int32_t i = first + static_cast<std::int32_t>(threadIdx.x % 32);
  if (i >= view.thin) return;
  auto sum = S::zero();
  for (std::int32_t s = 0; s < view.thin_slots; ++s) {
    const Pair<Index> from = view.thin_source[s * view.thin + i];
    auto x = now[from.x];
    if (view.two) x = S::plus(x, now[from.y]);
    sum = S::plus_times(sum, x, thin_matrix[s * view.thin + i]);
  }
  using P = typename S::Value;
  emit(bytes_of<P>(view.first_thin + i), bytes_of<P>(view.label[view.first_thin + i]), sum);
}

// Steps by a general schedule, which reads everything anew. emit(cell, label, sum) takes each cell's sum over its
// slots; the cell and its label are places in arrays of P, in bytes.
template <class S, class Index>
struct GeneralSteps {
  using P = typename S::Value;
  const SweepView<Index>& view;
  const P *matrix, *thin_matrix;

  template <class Emit>
  __device__ void operator()(const P* now, const Emit& emit) const {
    const std::int32_t warp = threadIdx.x / 32;
    if (warp >= view.warps) return;
    for (std::int32_t u = view.warp_begin[warp]; u < view.warp_begin[warp + 1]; ++u) {
      const Unit unit = view.unit[u];
      if (unit.group < 0) {
        thin_unit<S>(view, unit.first, thin_matrix, now, emit);
        continue;
      }
      const SweepGroup group = view.group[unit.group];
      by_lanes(unit.lanes, [&](auto lanes) {
        constexpr std::int32_t n = decltype(lanes)::value;
        if (view.two) {
          thick_unit<S, n, true>(view, group, unit.first, matrix, now, emit);
        } else {
          thick_unit<S, n, false>(view, group, unit.first, matrix, now, emit);
        }
      });
    }
  }
};

// Steps with everything but the cells in registers.
template <class S, class Index>
class ResidentSteps {
 public:
  using P = typename S::Value;

  __device__ ResidentSteps(const SweepView<Index>& view, const P* matrix, const P* thin_matrix) : two_(view.two) {
    load_tile(view, matrix);
    load_thin(view, thin_matrix);
  }

  template <class Emit>
  __device__ void operator()(const P* now, const Emit& emit) const {
    if (lanes_ > 0) {  // the same for a whole warp
      if (two_) {
        tile_step<true>(now, emit);
      } else {
        tile_step<false>(now, emit);
      }
    }
    if (own_thin_ == 0) return;
    P sum[kResidentThin];
#pragma unroll
    for (std::int32_t k = 0; k < kResidentThin; ++k) {
      const P first = S::plus_times(S::zero(), value_of(now, thin_place_[k] & 0xffff), thin_gain_[k][0]);
      sum[k] = S::plus_times(first, value_of(now, thin_place_[k] >> 16), thin_gain_[k][1]);
    }
#pragma unroll
    for (std::int32_t k = 0; k < kResidentThin; ++k) {
      if (k < own_thin_) emit(thin_out_[k] & 0xffff, thin_out_[k] >> 16, sum[k]);
    }
  }

 private:
  static __device__ std::uint32_t both(std::int32_t x, std::int32_t y) { return bytes_of<P>(x) | bytes_of<P>(y) << 16; }

  __device__ void load_tile(const SweepView<Index>& view, const P* matrix) {
    const std::int32_t warp = threadIdx.x / 32;
    if (warp >= view.warps || view.warp_begin[warp] == view.warp_begin[warp + 1]) return;
    const Unit unit = view.unit[view.warp_begin[warp]];
    const SweepGroup group = view.group[unit.group];
    lanes_ = unit.lanes;
    by_lanes(unit.lanes, [&](auto lanes) {
      constexpr std::int32_t kLanes = decltype(lanes)::value;
      const TileOf<kLanes> tile(group, unit.first);
      part_ = tile.part;
      first_cell_ = bytes_of<P>(tile.first_cell(group));
      next_cell_ = bytes_of<P>(group.states);
      own_cells_ = tile.own_cells(group);
#pragma unroll
      for (std::int32_t o = 0; o < kTile / kLanes; o += 2) {
        const std::int32_t cell = tile.first_cell(group) + o * group.states;
        label_[o / 2] =
            both(o < own_cells_ ? view.label[cell] : 0, o + 1 < own_cells_ ? view.label[cell + group.states] : 0);
      }
#pragma unroll
      for (std::int32_t k = 0; k < kResidentSlots; ++k) {
        const std::int32_t i = tile.part + k * kLanes;
        const bool real = i < group.slots;
        const std::int32_t source = group.first_source + tile.state * group.slots + i;
        place_[k] = real ? both(view.source[source].x, view.source[source].y) : both(view.cells, view.cells);
#pragma unroll
        for (std::int32_t o = 0; o < kTile; ++o) {
          gain_[k][o] = real ? matrix[group.first_entry + i * group.width + tile.tile * kTile + o] : S::zero();
        }
      }
    });
  }

  __device__ void load_thin(const SweepView<Index>& view, const P* thin_matrix) {
    own_thin_ = 0;
#pragma unroll
    for (std::int32_t k = 0; k < kResidentThin; ++k) {
      const std::int32_t i = static_cast<std::int32_t>(threadIdx.x + k * blockDim.x);
      thin_place_[k] = both(view.cells, view.cells);
      thin_gain_[k][0] = thin_gain_[k][1] = S::zero();
      if (i >= view.thin) continue;
      own_thin_ = k + 1;
      const std::int32_t cell = view.first_thin + i;
      thin_out_[k] = both(cell, view.label[cell]);
      const Pair<Index> first = view.thin_source[i];
      const bool slots = view.thin_slots > 1;
      thin_place_[k] = both(first.x, slots ? view.thin_source[view.thin + i].x : first.y);
      thin_gain_[k][0] = thin_matrix[i];
      thin_gain_[k][1] = thin_matrix[slots ? view.thin + i : i];
    }
  }

  template <bool kTwo, class Emit>
  __device__ void tile_step(const P* now, const Emit& emit) const {
    P x[kResidentSlots];
#pragma unroll
    for (std::int32_t k = 0; k < kResidentSlots; ++k) {
      x[k] = value_of(now, place_[k] & 0xffff);
      if constexpr (kTwo) x[k] = S::plus(x[k], value_of(now, place_[k] >> 16));
    }
    P sum[kTile];
#pragma unroll
    for (std::int32_t o = 0; o < kTile; ++o) sum[o] = S::zero();
#pragma unroll
    for (std::int32_t k = 0; k < kResidentSlots; ++k) {
#pragma unroll
      for (std::int32_t o = 0; o < kTile; ++o) sum[o] = S::plus_times(sum[o], x[k], gain_[k][o]);
    }
    by_lanes(lanes_, [&](auto lanes) {
      constexpr std::int32_t kLanes = decltype(lanes)::value;
      share_out<S, kLanes>(part_, sum);
#pragma unroll
      for (std::int32_t k = 0; k < kTile / kLanes; ++k) {
        const std::uint32_t label = k % 2 ? label_[k / 2] >> 16 : label_[k / 2] & 0xffff;
        if (k < own_cells_) emit(first_cell_ + k * next_cell_, label, sum[k]);
      }
    });
  }

  bool two_;
  std::int32_t lanes_ = 0, part_ = 0, own_cells_ = 0, own_thin_ = 0;
  std::uint32_t first_cell_ = 0, next_cell_ = 0;
  std::uint32_t label_[kTile / 2];       // of its cells, two in one
  std::uint32_t place_[kResidentSlots];  // of a slot's two sources among the cells
  P gain_[kResidentSlots][kTile];
  std::uint32_t thin_out_[kResidentThin], thin_place_[kResidentThin];  // cell and label; two sources
  P thin_gain_[kResidentThin][kResidentTerms];
};

// The emissions of a few positions ahead, on chip: a ring of rows of K + 1 numbers.
constexpr std::int32_t kRowsAhead = 8;

template <class P>
class Rows {
 public:
  __device__ Rows(P* ring, const P* emissions, std::int32_t K, std::int32_t T, bool back)
      : ring_(ring), emissions_(emissions), width_(K + 1), T_(T), back_(back) {}
  // Asks for the first rows.
  __device__ void begin() {
    for (std::int32_t n = 0; n < kRowsAhead - 1; ++n) ask(n);
  }
  // The row of step n, whole once the block has met; asks for another.
  __device__ const P* operator[](std::int32_t n) const { return ring_ + (n % kRowsAhead) * width_; }
  // The last warp asks, and waits for the block.
  __device__ static bool asks() { return threadIdx.x / 32 + 1 == blockDim.x / 32; }
  __device__ void ask(std::int32_t n) {
    if (!asks()) return;
    if (n < T_) {
      const P* from = emissions_ + std::int64_t{back_ ? T_ - 1 - n : n} * width_;
      for (std::int32_t k = threadIdx.x % 32; k < width_; k += 32) {
        __pipeline_memcpy_async(ring_ + (n % kRowsAhead) * width_ + k, from + k, sizeof(P));
      }
    }
    __pipeline_commit();
  }
  // Before the block meets at the end of step n: the row of step n + 1 is there.
  __device__ static void wait() {
    if (asks()) __pipeline_wait_prior(kRowsAhead - 3);
  }

 private:
  P* ring_;
  const P* emissions_;
  std::int32_t width_, T_;
  bool back_;
};

// Copies `bytes` (a multiple of 16) from global memory; the whole block takes part.
__device__ inline void copy_in(char* to, const char* from, std::int32_t bytes) {
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x) * 16; i < bytes;
       i += static_cast<std::int32_t>(blockDim.x) * 16) {
    *reinterpret_cast<int4*>(to + i) = *reinterpret_cast<const int4*>(from + i);
  }
}

}  // namespace regccrf::cuda
