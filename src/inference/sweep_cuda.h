// One step of a sweep, by one block or by a cluster of them. Written once: the semiring says what sums and products
// are, and `emit` what becomes of an out.
//
// A small automaton's step is short, and a block's steps follow one another, so what counts is how many instructions
// stand one behind the other. ResidentSteps is one straight line of them: nobody is left out, threads with nothing to
// do read a zero and write to a cell that nobody reads.
//
// A large automaton's step is bound by what one processor reads, so a cluster shares it out (Shares in sweep.h): a
// block has on chip the cells that its shares want, and sends an out to the blocks that want it. Alone and Together are
// the two ways for blocks to end a step.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "inference/device_cuda.h"
#include "inference/multiply_cuda.h"

namespace regccrf::cuda {

// Where a block keeps what a step reads: in memory, on chip, or on chip with the matrices in registers; or the cells
// that it wants on chip and the rest in memory, as one of a cluster.
enum class Keep { memory, chip, registers, cluster };

// The larger word of a number ≥ 0: ordered as the numbers are, and holds the exponent.
__device__ inline unsigned high_word(float x) { return __float_as_uint(x); }
__device__ inline unsigned high_word(double x) { return static_cast<unsigned>(__double2hiint(x)); }

// 2^-e for the exponent e of the number with this high word, and e.
__device__ inline float scale_of(unsigned high, std::int32_t& e, float) {
  e = high ? min(max(static_cast<std::int32_t>(high >> 23) - 127, -125), 125) : 0;
  return __uint_as_float(static_cast<unsigned>(127 - e) << 23);
}
__device__ inline double scale_of(unsigned high, std::int32_t& e, double) {
  e = high ? min(max(static_cast<std::int32_t>(high >> 20) - 1023, -1021), 1021) : 0;
  return __hiloint2double((1023 - e) << 20, 0);
}

// From a block's cells to those of the step behind: rows are read four cells at a time.
__host__ __device__ inline std::int64_t room_for(std::int32_t all_cells) {
  return (std::int64_t{all_cells} + 3) / 4 * 4;
}

// The power of two that a number of blocks or shares is.
__host__ __device__ constexpr std::int32_t power_of(std::int32_t count) {
  return count >= 16 ? 4 : count >= 8 ? 3 : count >= 4 ? 2 : count >= 2 ? 1 : 0;
}

template <class Index>
struct alignas(2 * sizeof(Index)) Pair {
  Index x, y;
};

// How blocks do the steps of a walk: alone, or with others in a cluster.
template <class P, class Bits>
class Alone;
template <class P, class Bits>
class Together;

// The hot part of a DeviceSweep, on chip or not.
template <class Index>
struct SweepView {
  template <class P, class Bits>
  using Team = Alone<P, Bits>;
  const SweepGroup* group;
  const Unit* unit;
  const TensorUnit* tensor;
  const std::int32_t* warp_begin;
  const Index *label, *stored, *out_of;
  const Pair<Index>* source;
  const Pair<Index>* thin_source;
  const std::int32_t* extra_begin;
  const Index* extra_source;
  std::int32_t K, outs, cells, extras, thin, first_thin, thin_slots, warps, trash, tensor_units;
  bool two;

  __device__ SweepView(const DeviceSweep& sweep, const char* hot, int resident)
      : group(reinterpret_cast<const SweepGroup*>(hot + sweep.group_at)),
        unit(reinterpret_cast<const Unit*>(hot + sweep.unit_at[resident])),
        tensor(reinterpret_cast<const TensorUnit*>(hot + sweep.tensor_at)),
        warp_begin(reinterpret_cast<const std::int32_t*>(hot + sweep.warp_at[resident])),
        label(reinterpret_cast<const Index*>(hot + sweep.label_at)),
        stored(reinterpret_cast<const Index*>(hot + sweep.stored_at)),
        out_of(reinterpret_cast<const Index*>(hot + sweep.out_of_at)),
        source(reinterpret_cast<const Pair<Index>*>(hot + sweep.source_at)),
        thin_source(reinterpret_cast<const Pair<Index>*>(hot + sweep.thin_source_at)),
        extra_begin(reinterpret_cast<const std::int32_t*>(hot + sweep.extra_begin_at)),
        extra_source(reinterpret_cast<const Index*>(hot + sweep.extra_source_at)),
        K(sweep.K),
        outs(sweep.outs),
        cells(sweep.cells),
        extras(sweep.extras),
        thin(sweep.thin),
        first_thin(sweep.first_thin),
        thin_slots(sweep.thin_slots),
        warps(sweep.warps[resident]),
        trash(sweep.trash),
        tensor_units(sweep.tensor_units),
        two(sweep.two != 0) {}

  __device__ std::int32_t room() const { return cells + 1 + extras; }  // a step's numbers
  __device__ std::int32_t first_cell(const Unit&) const { return 0; }  // from here on a unit's sources count

  // Where an out goes: one of all, a group's, a thin one.
  struct Place {
    std::int32_t label, out, cell;
  };
  __device__ Place place(std::int32_t out) const { return {label[out], out, stored[out]}; }
  __device__ Place place(const SweepGroup& group, std::int32_t state, std::int32_t o) const {
    return place(group.first_out + state * group.width + o);
  }
  __device__ Place thin_place(std::int32_t out) const { return place(out); }

  // The sources of a state's slots, and from one to the next.
  static constexpr int kTogether = 4;
  __device__ const Pair<Index>* sources(const SweepGroup& group, std::int32_t state) const {
    return source + group.first_source + state * group.slots;
  }
  static __device__ std::int32_t stride(const SweepGroup&) { return 1; }

  // act(first source, last source, where the cells begin that they count, cell) for the thread's extras.
  template <class Act>
  __device__ void each_extra(const Act& act) const {
    for (std::int32_t i = threadIdx.x; i < extras; i += blockDim.x)
      act(extra_begin[i], extra_begin[i + 1], 0, cells + 1 + i);
  }
};

// The same for a block of a cluster: its shares, whose cells lie one share's behind the other's.
template <class Index>
struct SharesView : SweepView<Index> {
  template <class P, class Bits>
  using Team = Together<P, Bits>;
  const DeviceShares& shares;
  const SweepGroup* group;
  const Unit* unit;
  const std::int32_t* warp_begin;
  const Pair<std::uint16_t>*source, *thin_source;
  const std::uint16_t* extra_source;
  std::int32_t extras, warps, blocks, rank, own;  // own: shares of a block
  std::int32_t own_bits;

  __device__ SharesView(const DeviceSweep& sweep, std::int32_t blocks)
      : SweepView<Index>(sweep, sweep.hot, 0),
        shares(sweep.shares),
        group(sweep.shares.group),
        source(reinterpret_cast<const Pair<std::uint16_t>*>(sweep.shares.source)),
        thin_source(reinterpret_cast<const Pair<std::uint16_t>*>(sweep.shares.thin_source)),
        extra_source(sweep.shares.extra_source),
        extras(sweep.shares.extras),
        blocks(blocks),
        rank(static_cast<std::int32_t>(blockIdx.x) & (blocks - 1)),
        own(kShares / blocks),
        own_bits(power_of(own)) {
    const std::int32_t kind = power_of(blocks) - 1;
    warps = shares.warps[kind];
    unit = shares.unit[kind];
    warp_begin = shares.warp_begin[kind] + rank * warps;
  }

  __device__ std::int32_t room() const { return own * shares.room; }
  __device__ std::int32_t first_cell(const Unit& unit) const { return (unit.share & (own - 1)) * shares.room; }

  struct Place : SharedOut {
    std::int32_t out, cell;
    __device__ Place(const SharedOut& at, std::int32_t number) : SharedOut(at), out(number), cell(number) {}
  };
  __device__ Place place(std::int32_t out) const { return {shares.outs[out], shares.number[out]}; }
  __device__ Place place(const SweepGroup& group, std::int32_t state, std::int32_t o) const {
    return {shares.outs[group.first_out + o * group.states + state], group.first_out + state * group.width + o};
  }
  __device__ Place thin_place(std::int32_t out) const { return {shares.outs[out], out}; }

  static constexpr int kTogether = 8;
  __device__ const Pair<std::uint16_t>* sources(const SweepGroup& group, std::int32_t state) const {
    return source + group.first_source + state;
  }
  static __device__ std::int32_t stride(const SweepGroup& group) { return group.states; }

  template <class Act>
  __device__ void each_extra(const Act& act) const {
    const std::int32_t last = shares.extra_first[(rank + 1) * own];
    for (std::int32_t i = shares.extra_first[rank * own] + static_cast<std::int32_t>(threadIdx.x); i < last;
         i += blockDim.x) {
      const std::uint32_t to = shares.extra_cell[i];
      const std::int32_t from = static_cast<std::int32_t>(to >> 16 & (own - 1)) * shares.room;
      act(shares.extra_begin[i], shares.extra_begin[i + 1], from, from + static_cast<std::int32_t>(to & 0xffff));
    }
  }
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

// Minima of sums of costs, which are whole numbers; kNoWay is more than any.
constexpr std::uint32_t kNoWay = 1u << 30;
struct MinPlus {
  using Value = std::uint32_t;
  static __device__ Value zero() { return kNoWay; }
  static __device__ Value plus(Value x, Value y) { return min(x, y); }
  static __device__ Value plus_times(Value best, Value x, Value gain) { return min(best, x + gain); }
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
__device__ inline void load4(const std::uint32_t* from, std::uint32_t to[4]) {
  const uint4 x = *reinterpret_cast<const uint4*>(from);
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}
__device__ inline void load4(const float* from, double to[4]) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}
__device__ inline void load4(const double* from, double to[4]) {
  const double2 x = reinterpret_cast<const double2*>(from)[0], y = reinterpret_cast<const double2*>(from)[1];
  to[0] = x.x, to[1] = x.y, to[2] = y.x, to[3] = y.y;
}

__device__ inline void store4(float* to, const float (&x)[4]) {
  *reinterpret_cast<float4*>(to) = float4{x[0], x[1], x[2], x[3]};
}
__device__ inline void store4(std::uint32_t* to, const std::uint32_t (&x)[4]) {
  *reinterpret_cast<uint4*>(to) = uint4{x[0], x[1], x[2], x[3]};
}
__device__ inline void store4(double* to, const double (&x)[4]) {
  reinterpret_cast<double2*>(to)[0] = double2{x[0], x[1]};
  reinterpret_cast<double2*>(to)[1] = double2{x[2], x[3]};
}

// The thread's number as a value that stays in a register: a compiler would ask for it anew each time, which takes
// long. It does not know that a lane asks itself.
__device__ inline std::int32_t thread_number() {
  return __shfl_xor_sync(0xffffffffu, static_cast<std::int32_t>(threadIdx.x), 0);
}

// A number that all threads of a warp have, in a way that the compiler knows it: branches on it cost little.
__device__ inline std::int32_t common_to_warp(std::int32_t x) { return __reduce_max_sync(0xffffffffu, x); }

// Which tile a thread works on, and which part of its slots. The threads of a tile are neighbours; neighbouring tiles
// are those of neighbouring states.
struct TileOf {
  std::int32_t part, tile, state;
  bool real;
  __device__ TileOf(std::int32_t states, std::int32_t tiles, std::int32_t first, std::int32_t lanes) {
    const std::int32_t lane = threadIdx.x % 32, item = first + lane / lanes;
    part = lane % lanes;
    real = item < states * tiles;
    tile = real ? item / states : 0;
    state = real ? item - tile * states : 0;
  }
  // The first of the outs that this thread has after sharing out, and how many: 8 / lanes, at least 1.
  __device__ std::int32_t first_own() const { return (part & 1) * 4 + (part & 2) + ((part & 4) >> 2); }
};

// The threads of a tile share out its sums: each round a thread keeps half of them and gives the other half to its
// partner. What it has in the end stands at the front of `sum`.
template <class S, std::int32_t kWidth>
__device__ void share_round(std::int32_t part, std::int32_t bit, typename S::Value (&sum)[kTile]) {
  const bool upper = (part & bit) != 0;
#pragma unroll
  for (std::int32_t k = 0; k < kWidth; ++k) {
    const auto given = upper ? sum[k] : sum[k + kWidth], kept = upper ? sum[k + kWidth] : sum[k];
    sum[k] = S::plus(kept, __shfl_xor_sync(0xffffffffu, given, bit));
  }
}
template <class S>
__device__ void share_out(std::int32_t lanes, std::int32_t part, typename S::Value (&sum)[kTile]) {
  if (lanes >= 2) share_round<S, 4>(part, 1, sum);
  if (lanes >= 4) share_round<S, 2>(part, 2, sum);
  if (lanes >= 8) share_round<S, 1>(part, 4, sum);
  if (lanes >= 16) sum[0] = S::plus(sum[0], __shfl_xor_sync(0xffffffffu, sum[0], 8));
}

// act(N) where N = 8 / lanes, at least 1 and at most kMost, is the number of outs that a thread has; the same for a
// whole warp.
template <std::int32_t kMost = kTile, class Act>
__device__ void own_outs(std::int32_t lanes, const Act& act) {
  if (lanes >= 8) {
    act(std::integral_constant<std::int32_t, 1>{});
  } else if (lanes == 4) {
    act(std::integral_constant<std::int32_t, 2>{});
  } else if (kMost == 4 || lanes == 2) {
    act(std::integral_constant<std::int32_t, 4>{});
  } else {
    act(std::integral_constant<std::int32_t, kMost>{});
  }
}

// Some tiles of a group, each by `lanes` threads that take its slots in turn.
template <class S, bool kTwo, class View, class Gain, class Emit>
__device__ void thick_unit(const View& view, const SweepGroup& group, const Unit& unit, const Gain* __restrict__ matrix,
                           const typename S::Value* now, const Emit& emit) {
  using P = typename S::Value;
  const std::int32_t lanes = unit.lanes;
  const TileOf at(group.states, group.tiles, unit.first, lanes);
  const auto* source = view.sources(group, at.state);
  const std::int32_t stride = view.stride(group);
  const auto* row = matrix + group.first_entry + at.tile * kTile;
  P sum[kTile];
#pragma unroll
  for (std::int32_t k = 0; k < kTile; ++k) sum[k] = S::zero();
#pragma unroll View::kTogether
  for (std::int32_t i = at.part; i < group.slots; i += lanes) {
    const auto from = source[i * stride];
    auto x = now[from.x];
    if constexpr (kTwo) x = S::plus(x, now[from.y]);
    P gain[kTile];
    load4(row + i * group.width, gain);
    load4(row + i * group.width + 4, gain + 4);
#pragma unroll
    for (std::int32_t k = 0; k < kTile; ++k) sum[k] = S::plus_times(sum[k], x, gain[k]);
  }
  share_out<S>(lanes, at.part, sum);
  const std::int32_t first = at.tile * kTile + at.first_own();
  own_outs(lanes, [&](auto own) {
#pragma unroll
    for (std::int32_t k = 0; k < decltype(own)::value; ++k) {
      if (!at.real || at.part >= kTile || first + k >= group.width) continue;
      const auto place = view.place(group, at.state, first + k);
      if (place.label != view.K) emit.send(place, emit.weight(bytes_of<P>(place.label)), sum[k]);
    }
  });
}

template <class S, class View, class Gain, class Emit>
__device__ void thin_unit(const View& view, std::int32_t first, const Gain* __restrict__ thin_matrix,
                          const typename S::Value* now, const Emit& emit) {
  using P = typename S::Value;
  const std::int32_t i = first + static_cast<std::int32_t>(threadIdx.x % 32);
  if (i >= view.thin) return;
  auto sum = S::zero();
  for (std::int32_t s = 0; s < view.thin_slots; ++s) {
    const auto from = view.thin_source[s * view.thin + i];
    auto x = now[from.x];
    if (view.two) x = S::plus(x, now[from.y]);
    sum = S::plus_times(sum, x, static_cast<P>(thin_matrix[s * view.thin + i]));
  }
  const std::int32_t out = view.first_thin + i;
  const auto place = view.thin_place(out);
  if (place.label != view.K) emit.send(place, emit.weight(bytes_of<P>(place.label)), sum);  // else padding
}

// Steps come in three parts, so that their user can do other things where they would wait:
//   load      asks for the cells that the products need
//   multiply  the products
//   finish    all that is left, with emit
// These do all in the last.
struct Nothing {};

// Steps by a general schedule, which reads everything anew. emit.send(view.place(out), emit.weight(label), sum) takes
// each out's sum over its slots; the label is a place in an array of P, in bytes. Gain: as the matrices are stored.
template <class S, class View, class Gain = typename S::Value>
struct GeneralSteps {
  using P = typename S::Value;
  static constexpr bool kResident = false;
  const View& view;
  const Gain *matrix, *thin_matrix;

  __device__ Nothing load(const P*) const { return {}; }
  __device__ Nothing multiply(Nothing) const { return {}; }

  template <class Emit>
  __device__ void finish(Nothing, const P* now, const Emit& emit) const {
    const std::int32_t warp = threadIdx.x / 32;
    if (warp >= view.warps) return;
    for (std::int32_t u = view.warp_begin[warp]; u < view.warp_begin[warp + 1]; ++u) {
      const Unit unit = view.unit[u];
      const P* from = now + view.first_cell(unit);
      if (unit.group < 0) {
        thin_unit<S>(view, unit.first, thin_matrix, from, emit);
      } else if (view.two) {
        thick_unit<S, true>(view, view.group[unit.group], unit, matrix, from, emit);
      } else {
        thick_unit<S, false>(view, view.group[unit.group], unit, matrix, from, emit);
      }
    }
  }

  // Sums of more than two cells, in cells of their own.
  __device__ void fill_extras(P* now) const {
    view.each_extra([&](std::int32_t first, std::int32_t last, std::int32_t from, std::int32_t cell) {
      P sum = S::zero();
      for (std::int32_t j = first; j < last; ++j) sum = S::plus(sum, now[from + view.extra_source[j]]);
      now[cell] = sum;
    });
  }
};

// Two places in arrays of P, in one register: in bytes where 16 bits hold those.
template <class P>
struct Two {
  static constexpr std::uint32_t kUnit = sizeof(P) == 4 ? 4 : 1;
  std::uint32_t bits;
  static __device__ Two of(std::int32_t x, std::int32_t y) {
    return {static_cast<std::uint32_t>(x) * kUnit | static_cast<std::uint32_t>(y) * kUnit << 16};
  }
  __device__ std::uint32_t x() const { return (bits & 0xffff) * (sizeof(P) / kUnit); }
  __device__ std::uint32_t y() const { return (bits >> 16) * (sizeof(P) / kUnit); }
};

// Outs, each a cell and a label. Weights first, all at once, since to read them takes a while.
template <std::int32_t kCount, class P, class Emit>
__device__ void emit_all(const Two<P>* out, const P* sum, const Emit& emit) {
  P weight[kCount];
#pragma unroll
  for (std::int32_t k = 0; k < kCount; ++k) weight[k] = emit.weight(out[k].y());
#pragma unroll
  for (std::int32_t k = 0; k < kCount; ++k) emit.store(out[k].x(), weight[k], sum[k]);
}

// The thin outs of a thread, in registers; every blockDim.x-th is its own.
template <class S, class Index>
class ThinOuts {
 public:
  using P = typename S::Value;

  __device__ explicit ThinOuts(const SweepView<Index>& view) {
    rounds_ = (view.thin + static_cast<std::int32_t>(blockDim.x) - 1) / static_cast<std::int32_t>(blockDim.x);
#pragma unroll
    for (std::int32_t k = 0; k < kResidentThin; ++k) {
      const std::int32_t i = static_cast<std::int32_t>(threadIdx.x + k * blockDim.x), out = view.first_thin + i;
      out_[k] = Two<P>::of(view.trash, view.K);
      from_[k] = Two<P>::of(view.cells, view.cells);
      if (i >= view.thin) continue;
      out_[k] = Two<P>::of(view.stored[out], view.label[out]);
      const Pair<Index> source = view.thin_source[i];
      from_[k] = Two<P>::of(source.x, view.thin_slots > 1 ? view.thin_source[view.thin + i].x : source.y);
    }
  }
  __device__ ThinOuts(const SweepView<Index>& view, const P* matrix) : ThinOuts(view) { load_gains(view, matrix); }
  __device__ void load_gains(const SweepView<Index>& view, const P* matrix) {
#pragma unroll
    for (std::int32_t k = 0; k < kResidentThin; ++k) {
      const std::int32_t i = static_cast<std::int32_t>(threadIdx.x + k * blockDim.x);
      gain_[k][0] = i < view.thin ? matrix[i] : S::zero();
      gain_[k][1] = i < view.thin ? matrix[view.thin_slots > 1 ? view.thin + i : i] : S::zero();
    }
  }

  template <class Emit>
  __device__ void operator()(const P* now, const Emit& emit) const {
    if (rounds_ > 2) {
      step<kResidentThin>(now, emit);
    } else if (rounds_ > 0) {
      step<2>(now, emit);
    }
  }

 private:
  template <std::int32_t kCount, class Emit>
  __device__ void step(const P* now, const Emit& emit) const {
    P x[kCount], y[kCount];
#pragma unroll
    for (std::int32_t k = 0; k < kCount; ++k) {
      x[k] = value_of(now, from_[k].x());
      y[k] = value_of(now, from_[k].y());
    }
#pragma unroll
    for (std::int32_t k = 0; k < kCount; ++k)
      x[k] = S::plus_times(S::plus_times(S::zero(), x[k], gain_[k][0]), y[k], gain_[k][1]);
    emit_all<kCount>(out_, x, emit);
  }

  std::int32_t rounds_;
  Two<P> out_[kResidentThin], from_[kResidentThin];  // cell and label; two sources
  P gain_[kResidentThin][kResidentTerms];
};

// Steps with everything but the cells in registers.
template <class S, class Index, std::int32_t kSlots, std::int32_t kRepeats>
class ResidentSteps {
 public:
  using P = typename S::Value;
  static constexpr bool kResident = true;
  static constexpr std::int32_t kOuts = kTile / 2;  // of a thread, since two share a tile at least

  __device__ ResidentSteps(const SweepView<Index>& view, const P* matrix, const P* thin_matrix) : ResidentSteps(view) {
    load_gains(view, matrix, thin_matrix);
  }

  // The same in two parts, for matrices that come later.
  __device__ explicit ResidentSteps(const SweepView<Index>& view) : thin_(view) {
    load_outs(view);
    lanes_ = common_to_warp(lanes_);
    plane_ = static_cast<std::uint32_t>(common_to_warp(static_cast<std::int32_t>(plane_)));
  }
  __device__ void load_gains(const SweepView<Index>& view, const P* matrix, const P* thin_matrix) {
    thin_.load_gains(view, thin_matrix);
    if (lanes_ == 0) return;
    const Unit unit = view.unit[view.warp_begin[threadIdx.x / 32]];
    const SweepGroup group = view.group[unit.group];
    const TileOf at(group.band, group.tiles, unit.first, unit.lanes);
#pragma unroll
    for (std::int32_t k = 0; k < kSlots; ++k) {
      const std::int32_t i = at.part * kSlots + k;
#pragma unroll
      for (std::int32_t o = 0; o < kTile; o += 4) {  // a width is a multiple of four
        const std::int32_t column = at.tile * kTile + o;
        P four[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
        if (at.real && i < group.slots && column < group.width)
          load4(matrix + group.first_entry + i * group.width + column, four);
#pragma unroll
        for (std::int32_t n = 0; n < 4; ++n) gain_[k][o + n] = four[n];
      }
    }
  }

  struct Loaded {
    P x[kSlots];
  };
  __device__ Loaded load(const P* now) const { return load(now, 0); }

  struct Sums {
    P sum[kTile];
  };
  __device__ Sums multiply(const Loaded& loaded) const {
    Sums sums{};
    if (lanes_ == 0) return sums;
#pragma unroll
    for (std::int32_t o = 0; o < kTile; ++o) sums.sum[o] = S::plus_times(S::zero(), loaded.x[0], gain_[0][o]);
#pragma unroll
    for (std::int32_t k = 1; k < kSlots; ++k) {
#pragma unroll
      for (std::int32_t o = 0; o < kTile; ++o) sums.sum[o] = S::plus_times(sums.sum[o], loaded.x[k], gain_[k][o]);
    }
    return sums;
  }

  template <class Emit>
  __device__ void finish(Sums& sums, const P* now, const Emit& emit) const {
    finish_tiles(sums, now, emit);
    thin(now, emit);
  }

  // Its two parts, in any order. The states behind the first wait until here.
  template <class Emit>
  __device__ void finish_tiles(Sums& sums, const P* now, const Emit& emit) const {
    if (lanes_ == 0) return;
#pragma unroll
    for (std::int32_t r = 0; r < kRepeats; ++r) {
      if (r > 0) sums = multiply(load(now, r));
      own_outs<kOuts>(lanes_, [&](auto own) {
        constexpr std::int32_t count = decltype(own)::value;
        P weight[count];  // first, since to read them takes a while
#pragma unroll
        for (std::int32_t k = 0; k < count; ++k) weight[k] = emit.weight(out_[r][k].y());
        share_out<S>(count == 1 ? lanes_ : kTile / count, part_, sums.sum);
#pragma unroll
        for (std::int32_t k = 0; k < count; ++k) emit.store(out_[r][k].x(), weight[k], sums.sum[k]);
      });
    }
  }
  template <class Emit>
  __device__ void thin(const P* now, const Emit& emit) const {
    thin_(now, emit);
  }

 private:
  __device__ void load_outs(const SweepView<Index>& view) {
    const std::int32_t warp = threadIdx.x / 32;
    if (warp >= view.warps || view.warp_begin[warp] == view.warp_begin[warp + 1]) return;
    const Unit unit = view.unit[view.warp_begin[warp]];
    const SweepGroup group = view.group[unit.group];
    const TileOf at(group.band, group.tiles, unit.first, unit.lanes);
    lanes_ = unit.lanes;
    part_ = at.part;
    plane_ = group.planes > 1 ? bytes_of<P>(group.states * group.stride) : 0;
    const std::int32_t first = at.tile * kTile + at.first_own();
#pragma unroll
    for (std::int32_t r = 0; r < kRepeats; ++r) {
      const std::int32_t state = at.state + r * group.band;
      const bool real = at.real && state < group.states;
      row_[r] = bytes_of<P>(group.first_cell + (real ? state : 0) * group.stride + at.part * kSlots);
#pragma unroll
      for (std::int32_t k = 0; k < kOuts; ++k) {
        const std::int32_t out = group.first_out + state * group.width + first + k;
        const bool own = real && k * lanes_ < kTile && first + k < group.width && at.part < kTile;
        out_[r][k] = own ? Two<P>::of(view.stored[out], view.label[out]) : Two<P>::of(view.trash, view.K);
      }
    }
  }

  __device__ Loaded load(const P* now, std::int32_t r) const {
    Loaded loaded;
    load_row(now, row_[r], loaded.x);
    if (plane_ > 0) {
      P second[kSlots];
      load_row(now, row_[r] + plane_, second);
#pragma unroll
      for (std::int32_t k = 0; k < kSlots; ++k) loaded.x[k] = S::plus(loaded.x[k], second[k]);
    }
    return loaded;
  }

  static __device__ void load_row(const P* now, std::uint32_t place, P (&x)[kSlots]) {
    const P* row = reinterpret_cast<const P*>(reinterpret_cast<const char*>(now) + place);
#pragma unroll
    for (std::int32_t k = 0; k < kSlots; k += 4) load4(row + k, x + k);
  }

  std::int32_t lanes_ = 0, part_ = 0;
  std::uint32_t row_[kRepeats] = {}, plane_ = 0;  // where its slots' cells begin; from there to their second sources
  P gain_[kSlots][kTile];
  Two<P> out_[kRepeats][kOuts];  // cell and label of its outs
  ThinOuts<S, Index> thin_;
};

// Sums of products with the tensor cores, in double whatever the cells are; the matrices are in registers.
template <class P, class Index>
class TensorSteps {
 public:
  static constexpr bool kResident = true;

  __device__ TensorSteps(const SweepView<Index>& view, const P* matrix, const P* thin_matrix)
      : thin_(view, thin_matrix) {
    load_columns(view, matrix);
  }

  __device__ Nothing load(const P*) const { return {}; }
  __device__ Nothing multiply(Nothing) const { return {}; }

  template <class Emit>
  __device__ void finish(Nothing, const P* now, const Emit& emit) const {
    if (tiles_ > 0) {  // the same for a whole warp
      if (columns_ == 1) {
        tile_step<1>(now, 0, emit);
        if (tiles_ > 1) tile_step<1>(now, 1, emit);
      } else {
        tile_step<2>(now, 0, emit);
        if (tiles_ > 1) tile_step<2>(now, 1, emit);
      }
    }
    thin_(now, emit);
  }

 private:
  static constexpr std::int32_t kSteps = kTensorSlots / 4,
                                kTogether = 8;  // of four slots; those that are loaded at once
  __device__ void load_columns(const SweepView<Index>& view, const P* matrix) {
    const std::int32_t warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, column = threadIdx.x % 4;
    if (warp >= view.tensor_units) return;
    const TensorUnit unit = view.tensor[warp];
    const SweepGroup group = view.group[unit.group];
    tiles_ = unit.tiles;
    columns_ = unit.columns;
    steps_ = (group.slots + 3) / 4;
    plane_ = group.planes > 1 ? group.states * group.stride : 0;
#pragma unroll
    for (std::int32_t c = 0; c < 2; ++c) {
      const std::int32_t o = unit.out + 8 * c + row;
#pragma unroll
      for (std::int32_t s = 0; s < kSteps; ++s) {
        const std::int32_t i = 4 * s + column;
        const bool real = c < unit.columns && i < group.slots && o < group.width;
        gain_[c][s] = real ? static_cast<double>(matrix[group.first_entry + i * group.width + o]) : 0.0;
      }
    }
#pragma unroll
    for (std::int32_t t = 0; t < 2; ++t) {
      const std::int32_t state = unit.state + 8 * t + row;
      const bool there = t < unit.tiles && state < group.states;
      row_[t] = group.first_cell + (there ? state : 0) * group.stride + column;
#pragma unroll
      for (std::int32_t k = 0; k < 4; ++k) {
        const std::int32_t o = unit.out + 8 * (k / 2) + 2 * column + k % 2,
                           out = group.first_out + state * group.width + o;
        const bool real = there && k / 2 < unit.columns && o < group.width;
        out_[t][k] = real ? Two<P>::of(view.stored[out], view.label[out]) : Two<P>::of(view.trash, view.K);
      }
    }
  }

  // Two sums for each column of tiles where there is one only, so that one product need not wait for the other.
  template <std::int32_t kColumns, class Emit>
  __device__ void tile_step(const P* now, std::int32_t t, const Emit& emit) const {
    const P* row = now + row_[t];
    double sum[2][2] = {};
#pragma unroll
    for (std::int32_t first = 0; first < kSteps; first += kTogether) {
      if (first >= steps_) break;
      P x[kTogether];
#pragma unroll
      for (std::int32_t s = 0; s < kTogether; ++s) x[s] = first + s < steps_ ? row[4 * (first + s)] : P{0};
      if (plane_ > 0) {
#pragma unroll
        for (std::int32_t s = 0; s < kTogether; ++s) x[s] += first + s < steps_ ? row[plane_ + 4 * (first + s)] : P{0};
      }
#pragma unroll
      for (std::int32_t s = 0; s < kTogether; ++s) {
        if constexpr (kColumns == 1) {
          multiply_tile(sum[s % 2], static_cast<double>(x[s]), gain_[0][first + s]);
        } else {
          multiply_tile(sum[0], static_cast<double>(x[s]), gain_[0][first + s]);
          multiply_tile(sum[1], static_cast<double>(x[s]), gain_[1][first + s]);
        }
      }
    }
    P out[4];
    if constexpr (kColumns == 1) {
      out[0] = static_cast<P>(sum[0][0] + sum[1][0]);
      out[1] = static_cast<P>(sum[0][1] + sum[1][1]);
      emit_all<2>(out_[t], out, emit);
    } else {
      for (int k = 0; k < 4; ++k) out[k] = static_cast<P>(sum[k / 2][k % 2]);
      emit_all<4>(out_[t], out, emit);
    }
  }

  std::int32_t tiles_ = 0, columns_ = 0, steps_ = 0, plane_ = 0;
  std::int32_t row_[2];     // where its lane's slots' cells begin
  double gain_[2][kSteps];  // as multiply_tile takes them
  Two<P> out_[2][4];        // cell and label of its outs
  ThinOuts<SumProduct<P>, Index> thin_;
};

// The emissions of some steps, on chip.
template <class P, bool kBack, class Score = P>
class Rows {
 public:
  // `room`: for `count` rows of K + 1 numbers.
  __device__ Rows(P* room, std::int32_t count, const Score* emissions, std::int32_t K, std::int32_t T)
      : room_(room), emissions_(emissions), count_(count), width_(K + 1), T_(T) {}
  // Copies the rows of step n and those behind it; the block must not be reading rows. Meets.
  __device__ void stage(std::int32_t n) {
    const std::int32_t rows = min(count_, T_ - n);
    end_ = n + rows;
    first_ = kBack ? T_ - end_ : n;
    const Score* from = emissions_ + std::int64_t{first_} * width_;
    for (std::int32_t i = threadIdx.x; i < rows * width_; i += blockDim.x) room_[i] = static_cast<P>(from[i]);
    __syncthreads();
  }
  __device__ bool staged(std::int32_t n) const { return n < end_; }
  __device__ const P* operator[](std::int32_t n) const { return room_ + ((kBack ? T_ - 1 - n : n) - first_) * width_; }

 private:
  P* room_;
  const Score* emissions_;
  std::int32_t count_, width_, T_, first_ = 0, end_ = 0;
};

// How many rows a block keeps: some, and not so many that blocks could not share a processor.
template <class P>
std::int32_t rows_kept(std::int64_t K, std::int64_t T) {
  constexpr std::int64_t bytes = 16384;
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(bytes / ((K + 1) * std::int64_t{sizeof(P)}), 1, std::max<std::int64_t>(T, 1)));
}

// Error where not even the rows that a block must have find room: `bytes` on chip, for scores of K labels.
inline void check_rows(const DeviceConstraint::Impl& c, std::int64_t bytes) {
  if (bytes <= c.shared_bytes) return;
  throw Error("[cuda] " + std::to_string(c.topology.K) + " labels: their scores at a position take " +
              std::to_string(bytes) + " bytes on chip, and a block of this device has " +
              std::to_string(c.shared_bytes) + ": use the CPU");
}

// The largest of a block's numbers in the step before: every warp leaves its own, and reads them all once the block has
// met. Bits: unsigned, or signed numbers.
template <class Bits>
class Peak {
 public:
  static constexpr int kBytes = 2 * 32 * sizeof(Bits);
  // Before the block first meets. `least`: for warps that are not there.
  __device__ Peak(Bits* room, Bits least, std::int32_t thread)
      : mine_(room + thread / 32), all_(room + thread % 32), leaves_(thread % 32 == 0) {
    for (std::int32_t i = thread; i < 64; i += blockDim.x) room[i] = least;
  }
  __device__ void leave(std::int32_t n, Bits mine) {
    const Bits most = __reduce_max_sync(0xffffffffu, mine);
    if (leaves_) mine_[(n & 1) * 32] = most;
  }
  __device__ Bits of_a_warp(std::int32_t n) const { return all_[(n & 1) * 32]; }
  static __device__ Bits of_all(Bits of_a_warp) { return __reduce_max_sync(0xffffffffu, of_a_warp); }

 private:
  Bits *mine_, *all_;
  bool leaves_;
};

// A block that does every step alone. How walks see it: which sequence is its own, which outs a thread begins with,
// where an out is put, and how a step ends.
template <class P, class Bits>
class Alone {
 public:
  static constexpr bool kAlone = true;
  static constexpr int kBytes = Peak<Bits>::kBytes;
  // Before the block first meets. `room`: kBytes on chip. `least`: the peak of nothing.
  template <class View>
  __device__ Alone(char* room, Bits least, std::int32_t thread, const View&)
      : peak_(reinterpret_cast<Bits*>(room), least, thread), thread_(thread) {}
  __device__ std::int32_t thread() const { return thread_; }
  __device__ std::int64_t sequence() const { return blockIdx.x; }
  __device__ std::int32_t first() const { return static_cast<std::int32_t>(threadIdx.x); }
  __device__ std::int32_t stride() const { return static_cast<std::int32_t>(blockDim.x); }
  __device__ bool leads() const { return thread_ == 0; }
  __device__ void begin() {}
  template <class Place>
  __device__ void put(P* next, const Place& place, P value) const {
    next[place.cell] = value;
  }
  __device__ void meet(std::int32_t n, Bits mine) {
    peak_.leave(n, mine);
    __syncthreads();
  }
  // What peak() then needs, asked for beforehand.
  __device__ Bits look(std::int32_t n) const { return peak_.of_a_warp(n); }
  __device__ Bits peak(Bits seen) const { return peak_.of_all(seen); }

 private:
  Peak<Bits> peak_;
  std::int32_t thread_;
};

// The blocks of a cluster, each with cells of its own for two steps, and a mailbox for each: into the one it reads, and
// into the other all send. A block sends its peak when all of its threads have read what they read in this step, and
// goes on when it has everybody's: so nobody sends to cells that are still read.
template <class P, class Bits>
class Together {
 public:
  static constexpr bool kAlone = false;
  static constexpr int kBytes = Peak<Bits>::kBytes + 2 * kShares * sizeof(Bits) + 2 * sizeof(Mailbox);
  template <class View>
  __device__ Together(char* room, Bits least, std::int32_t thread, const View& view)
      : peak_(reinterpret_cast<Bits*>(room), least, thread),
        peaks_(reinterpret_cast<Bits*>(room + Peak<Bits>::kBytes)),
        boxes_(reinterpret_cast<Mailbox*>(room + Peak<Bits>::kBytes + 2 * kShares * sizeof(Bits))),
        box_(boxes_),
        rest_(view.shares.rest),
        thread_(thread),
        room_(view.shares.room),
        blocks_(view.blocks),
        rank_(view.rank),
        own_bits_(view.own_bits) {
    for (std::int32_t k = 0; k < view.own; ++k) bytes_ += view.shares.copies[rank_ * view.own + k] * sizeof(P);
    bytes_ += blocks_ * sizeof(Bits);
    if (thread == 0) {
      open_mailbox(boxes_);
      open_mailbox(boxes_ + 1);
    }
  }
  __device__ std::int32_t thread() const { return thread_; }
  __device__ std::int64_t sequence() const { return static_cast<std::int32_t>(blockIdx.x) / blocks_; }
  __device__ std::int32_t first() const { return rank_ * static_cast<std::int32_t>(blockDim.x) + thread_; }
  __device__ std::int32_t stride() const { return blocks_ * static_cast<std::int32_t>(blockDim.x); }
  __device__ bool leads() const { return rank_ == 0 && thread_ == 0; }
  // Cells are cleared.
  __device__ void begin() { meet_cluster(); }

  __device__ void put(P* next, const SharedOut& to, P value) const {
    if (to.x != kNoCell) deliver(next, to.x, value);
    if (to.y != kNoCell) deliver(next, to.y, value);
    if (to.rest < 0) return;
    for (std::int32_t i = to.rest; rest_[i] != kNoCell; ++i) deliver(next, rest_[i], value);
  }

  __device__ void meet(std::int32_t n, Bits mine) {
    peak_.leave(n, mine);
    __syncthreads();
    if (thread_ < 32) {
      const Bits most = peak_.of_all(peak_.of_a_warp(n));
      if (thread_ < blocks_) send(peaks_ + n % 2 * kShares + rank_, static_cast<std::uint32_t>(thread_), most, box_);
      if (thread_ == 0) expect(box_, bytes_);
    }
    wait_for(box_, static_cast<std::uint32_t>(n / 2));
    box_ = boxes_ + (n + 1) % 2;
  }
  __device__ Bits look(std::int32_t n) const { return peaks_[n % 2 * kShares + (thread_ & (blocks_ - 1))]; }
  __device__ Bits peak(Bits seen) const { return peak_.of_all(seen); }

 private:
  __device__ void deliver(P* next, std::uint32_t to, P value) const {
    const std::uint32_t share = to >> 16;
    const std::uint32_t here = share & ((1u << own_bits_) - 1);
    send(next + here * room_ + (to & 0xffff), share >> own_bits_, value, box_);
  }

  Peak<Bits> peak_;
  Bits* peaks_;            // [2, kShares] of the blocks, in a step
  Mailbox *boxes_, *box_;  // [2], and the one of this step
  const std::uint32_t* rest_;
  std::int32_t thread_, room_, blocks_, rank_, own_bits_;  // a block has 2^own_bits_ shares
  std::uint32_t bytes_ = 0;                                // that come to the block in a step
};

// What the cells of a block of a cluster take on chip; the warps that it has.
template <class P>
std::int64_t shares_bytes(const DeviceConstraint::Impl& c, std::int32_t blocks) {
  const std::int64_t room = std::max(c.forward.shares.room, c.backward.shares.room);
  return 2 * room * (kShares / blocks) * static_cast<int>(sizeof(P));
}
inline std::int32_t warps_together(const DeviceConstraint::Impl& c, std::int32_t blocks) {
  const std::int32_t kind = power_of(blocks) - 1;
  return std::max(c.forward.shares.warps[kind], c.backward.shares.warps[kind]);
}

// How many blocks do a step together, of `walks` walks with `room` on chip for cells: what ends first, by microseconds
// a step as an H200 takes them, times how often the device must be filled. `on_chip`: a block alone would have all
// there.
template <class P>
std::int32_t blocks_together(const DeviceConstraint::Impl& c, std::int64_t walks, std::int64_t room, bool on_chip) {
  if (c.forward.shares.room == 0 || c.backward.shares.room == 0) return 1;
  const auto cost = static_cast<double>(std::max(c.forward.cost, c.backward.cost));
  const auto rounds = [&](int power) {
    return static_cast<double>((walks + c.clusters[power] - 1) / c.clusters[power]);
  };
  double least = 0.85 * rounds(0) * cost * (on_chip ? 0.0005 : 0.0014);
  std::int32_t best = 1;
  for (int power = 1; power < 5 && c.clusters[power] > 0; ++power) {
    const std::int32_t blocks = 1 << power;
    const double time = rounds(power) * (1 + 0.0016 * cost / blocks);
    if (time >= least || shares_bytes<P>(c, blocks) > room) continue;
    least = time;
    best = blocks;
  }
  return best;
}

// A step's cells go to memory, four at a time; `count` is a multiple of four. Two at once, for that is mostly all.
template <class P>
__device__ void copy_out(P* __restrict__ to, const P* from, std::int32_t count, std::int32_t thread) {
  const std::int32_t further = 4 * static_cast<std::int32_t>(blockDim.x);
#pragma unroll 1
  for (std::int32_t c = 4 * thread; c < count; c += 2 * further) {
    P four[4], others[4];
    const bool more = c + further < count;
    load4(from + c, four);
    if (more) load4(from + c + further, others);
    store4(to + c, four);
    if (more) store4(to + c + further, others);
  }
}

// Copies `bytes` (a multiple of 16) from global memory; the whole block takes part.
__device__ inline void copy_in(char* to, const char* from, std::int32_t bytes) {
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x) * 16; i < bytes;
       i += static_cast<std::int32_t>(blockDim.x) * 16) {
    *reinterpret_cast<int4*>(to + i) = *reinterpret_cast<const int4*>(from + i);
  }
}

// A sweep's hot part and its matrices, on chip from `at` on; the whole block takes part, and meets.
template <class P>
struct OnChip {
  const P *matrix, *thin;
  const char* hot;
};
template <class P, class Gain>
__device__ OnChip<P> bring(char* at, const DeviceSweep& sweep, const Gain* matrix, const Gain* thin) {
  const std::int64_t entries = sweep.entries + 8, thin_entries = std::int64_t{sweep.thin} * sweep.thin_slots;
  const auto after = [](std::int64_t count) { return (count * std::int64_t{sizeof(P)} + 15) / 16 * 16; };
  P *matrix_here = reinterpret_cast<P*>(at), *thin_here = reinterpret_cast<P*>(at + after(entries));
  char* hot = at + after(entries) + after(thin_entries);
  for (std::int64_t i = threadIdx.x; i < entries; i += blockDim.x) matrix_here[i] = static_cast<P>(matrix[i]);
  for (std::int64_t i = threadIdx.x; i < thin_entries; i += blockDim.x) thin_here[i] = static_cast<P>(thin[i]);
  copy_in(hot, sweep.hot, sweep.hot_bytes);
  __syncthreads();
  return {matrix_here, thin_here, hot};
}

// Calls act(view, steps, cells) for a block that goes by the general schedule: with everything on chip from `at` on,
// with its cells in `cells` and the rest where it is, or with cells at `at` as one of `blocks` in a cluster.
template <class S, class Index, Keep kKeep, class Gain, class Act>
__device__ void with_general_steps(const DeviceSweep& sweep, std::int32_t blocks, const Gain* matrix, const Gain* thin,
                                   char* at, typename S::Value* cells, const Act& act) {
  using P = typename S::Value;
  if constexpr (kKeep == Keep::cluster) {
    const SharesView<Index> view(sweep, blocks);
    act(view, GeneralSteps<S, SharesView<Index>, Gain>{view, matrix, thin}, reinterpret_cast<P*>(at));
  } else if constexpr (kKeep == Keep::chip) {
    cells = reinterpret_cast<P*>(at);
    const OnChip<P> here = bring<P>(at + 2 * room_for(sweep.all_cells) * std::int64_t{sizeof(P)}, sweep, matrix, thin);
    const SweepView<Index> view(sweep, here.hot, 0);
    act(view, GeneralSteps<S, SweepView<Index>>{view, here.matrix, here.thin}, cells);
  } else {
    const SweepView<Index> view(sweep, sweep.hot, 0);
    act(view, GeneralSteps<S, SweepView<Index>, Gain>{view, matrix, thin}, cells);
  }
}

}  // namespace regccrf::cuda
