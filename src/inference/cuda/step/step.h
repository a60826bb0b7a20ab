// One step of a layout, written once: the semiring says what sums and products are, and `epilogue` what is done with an
// out. Here are the steps by a general schedule, for every automaton; register_step.h has those of small ones, and
// cluster_step.h the blocks that do them.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "inference/cuda/device.h"
#include "inference/cuda/warp.h"

namespace regccrf::cuda {

// Where tables and weights of a step are: read from global memory in every step, or in registers; or as in memory, with
// the cells shared out over a cluster of blocks.
enum class Storage { memory, registers, cluster };

// The high 32 bits of a number ≥ 0: ordered as the numbers are, and with the exponent.
__device__ inline unsigned high_word(float x) { return __float_as_uint(x); }
__device__ inline unsigned high_word(double x) { return static_cast<unsigned>(__double2hiint(x)); }

// 2^-e for the exponent e of the number with this high word over 2^peak, and e.
__device__ inline float scale_of(unsigned high, std::int32_t& e, float, std::int32_t peak = 0) {
  e = high ? min(max(static_cast<std::int32_t>(high >> 23) - 127 - peak, -125), 125) : 0;
  return __uint_as_float(static_cast<unsigned>(127 - e) << 23);
}
__device__ inline double scale_of(unsigned high, std::int32_t& e, double, std::int32_t peak = 0) {
  e = high ? min(max(static_cast<std::int32_t>(high >> 20) - 1023 - peak, -1021), 1021) : 0;
  return __hiloint2double((1023 - e) << 20, 0);
}

// From the cells of a step to those of the next, in numbers: they are read four at a time.
__host__ __device__ inline std::int64_t padded_cells(std::int32_t all_cells) {
  return round_up(std::int64_t{all_cells}, 4);
}

// Of a number of blocks or partitions, which is a power of two.
__host__ __device__ constexpr std::int32_t log2_of(std::int32_t count) {
  return count >= 16 ? 4 : count >= 8 ? 3 : count >= 4 ? 2 : count >= 2 ? 1 : 0;
}

// A step as a block sees it that does it alone.
struct StepView : DeviceStep {
  const DeviceSchedule& schedule;

  __device__ explicit StepView(const DeviceStep& layout) : DeviceStep(layout), schedule(layout.general) {}

  __device__ std::int32_t step_cells() const { return cells + 1 + fan_ins; }  // a step's numbers
  __device__ std::int32_t first_cell(const Unit&) const { return 0; }         // from here on a unit's sources count

  // Where an out goes: one of all, a group's, a sparse one.
  struct Place {
    std::int32_t label, out, cell;
  };
  __device__ Place place(std::int32_t out) const { return {label[out], out, stored[out]}; }
  __device__ Place place(const DenseGroup& group, std::int32_t state, std::int32_t o) const {
    return place(group.first_out + state * group.width + o);
  }
  __device__ Place sparse_place(std::int32_t out) const { return place(out); }

  // The sources of a state's slots, and from one to the next.
  static constexpr int kTogether = 4;
  __device__ const Source* sources(const DenseGroup& group, std::int32_t state) const {
    return source + group.first_source + state * group.slots;
  }
  static __device__ std::int32_t stride(const DenseGroup&) { return 1; }

  // act(first source, last source, where the cells begin that they count, cell) for the thread's fan-ins.
  template <class Act>
  __device__ void each_fan_in(const Act& act) const {
    for (std::int32_t i = threadIdx.x; i < fan_ins; i += blockDim.x)
      act(fan_in_begin[i], fan_in_begin[i + 1], 0, cells + 1 + i);
  }
};

// The same for a block of a cluster: its partitions, whose cells lie one partition's behind the other's.
struct ClusterView : StepSizes {
  const DevicePartitions& partitions;
  const DenseGroup* group;
  const NarrowSource *source, *sparse_source;
  const std::uint16_t* fan_in_source;
  DeviceSchedule schedule;
  std::int32_t blocks, rank, own;  // own: partitions of a block
  std::int32_t own_bits;

  __device__ ClusterView(const DeviceStep& layout, std::int32_t blocks)
      : StepSizes(layout),
        partitions(layout.partitions),
        group(layout.partitions.group),
        source(layout.partitions.source),
        sparse_source(layout.partitions.sparse_source),
        fan_in_source(layout.partitions.fan_in_source),
        schedule(layout.partitions.schedule[log2_of(blocks) - 1]),
        blocks(blocks),
        rank(static_cast<std::int32_t>(blockIdx.x) & (blocks - 1)),
        own(kPartitions / blocks),
        own_bits(log2_of(own)) {
    fan_ins = partitions.fan_ins;
    schedule.warp_begin += rank * schedule.warps;
  }

  __device__ std::int32_t step_cells() const { return own * partitions.cells; }
  __device__ std::int32_t first_cell(const Unit& unit) const { return (unit.partition & (own - 1)) * partitions.cells; }

  struct Place : PartitionedOut {
    std::int32_t out, cell;
    __device__ Place(const PartitionedOut& at, std::int32_t number) : PartitionedOut(at), out(number), cell(number) {}
  };
  __device__ Place place(std::int32_t out) const { return {partitions.outs[out], partitions.number[out]}; }
  __device__ Place place(const DenseGroup& group, std::int32_t state, std::int32_t o) const {
    return {partitions.outs[group.first_out + o * group.states + state], group.first_out + state * group.width + o};
  }
  __device__ Place sparse_place(std::int32_t out) const { return {partitions.outs[out], out}; }

  static constexpr int kTogether = 8;
  __device__ const NarrowSource* sources(const DenseGroup& group, std::int32_t state) const {
    return source + group.first_source + state;
  }
  static __device__ std::int32_t stride(const DenseGroup& group) { return group.states; }

  template <class Act>
  __device__ void each_fan_in(const Act& act) const {
    const std::int32_t last = partitions.fan_in_first[(rank + 1) * own];
    for (std::int32_t i = partitions.fan_in_first[rank * own] + static_cast<std::int32_t>(threadIdx.x); i < last;
         i += blockDim.x) {
      const std::uint32_t to = partitions.fan_in_cell[i];
      const std::int32_t from = static_cast<std::int32_t>(to >> 16 & (own - 1)) * partitions.cells;
      act(partitions.fan_in_begin[i], partitions.fan_in_begin[i + 1], from,
          from + static_cast<std::int32_t>(to & 0xffff));
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

// Maxima of sums. Compared by hand: max() of doubles takes twice as long, for what are no numbers.
struct MaxPlus {
  using Value = double;
  static __device__ double zero() { return -INFINITY; }
  static __device__ double plus(double x, double y) { return x > y ? x : y; }
  static __device__ double plus_times(double best, double x, double gain) { return plus(x + gain, best); }
};

// Minima of sums of costs, which are whole numbers; kUnreachable is more than any.
constexpr std::uint32_t kUnreachable = 1u << 30;
struct MinPlus {
  using Value = std::uint32_t;
  static __device__ Value zero() { return kUnreachable; }
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

// Four numbers to or from memory in vectors of 16 bytes. stream_store is for what another kernel reads once: it does
// not displace from the cache what every call needs.
template <class P>
struct alignas(16) Vector16 {
  static constexpr int kCount = 16 / sizeof(P);
  P x[kCount];
};
template <class P, class To>
__device__ void load4(const P* from, To* to) {
  using V = Vector16<P>;
#pragma unroll
  for (int i = 0; i < 4; i += V::kCount) {
    const V v = *reinterpret_cast<const V*>(from + i);
#pragma unroll
    for (int k = 0; k < V::kCount; ++k) to[i + k] = static_cast<To>(v.x[k]);
  }
}
template <class T>
__device__ void stream_store(T* to, T x) {
  __stcs(to, x);
}
template <class P>
__device__ void stream_store4(P* to, const P (&x)[4]) {
  using V = Vector16<P>;
#pragma unroll
  for (int i = 0; i < 4; i += V::kCount) {
    V v;
#pragma unroll
    for (int k = 0; k < V::kCount; ++k) v.x[k] = x[i + k];
    stream_store(reinterpret_cast<int4*>(to + i), *reinterpret_cast<const int4*>(&v));
  }
}

// The thread's number, kept in a register: the compiler would read the special register again at every use, which is
// slow. The shuffle hides where the number is from.
__device__ inline std::int32_t thread_number() {
  return __shfl_xor_sync(kAllLanes, static_cast<std::int32_t>(threadIdx.x), 0);
}

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
  // The first of the outs that this thread has after reduce_scatter(); there are 8 / lanes, at least 1.
  __device__ std::int32_t first_own() const { return (part & 1) * 4 + (part & 2) + ((part & 4) >> 2); }
};

// Reduces the sums of a tile over its threads and scatters them: in each round a thread keeps half of its sums and
// sends the other half to its partner. Results are compacted to the front of `sum`.
template <class S, std::int32_t kWidth>
__device__ void reduce_scatter_round(std::int32_t part, std::int32_t bit, typename S::Value (&sum)[kTile]) {
  const bool upper = (part & bit) != 0;
#pragma unroll
  for (std::int32_t k = 0; k < kWidth; ++k) {
    const auto given = upper ? sum[k] : sum[k + kWidth], kept = upper ? sum[k + kWidth] : sum[k];
    sum[k] = S::plus(kept, __shfl_xor_sync(kAllLanes, given, bit));
  }
}
template <class S>
__device__ void reduce_scatter(std::int32_t lanes, std::int32_t part, typename S::Value (&sum)[kTile]) {
  if (lanes >= 2) reduce_scatter_round<S, 4>(part, 1, sum);
  if (lanes >= 4) reduce_scatter_round<S, 2>(part, 2, sum);
  if (lanes >= 8) reduce_scatter_round<S, 1>(part, 4, sum);
  if (lanes >= 16) sum[0] = S::plus(sum[0], __shfl_xor_sync(kAllLanes, sum[0], 8));
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
template <class S, bool kTwo, class View, class Gain, class Epilogue>
__device__ void dense_unit(const View& view, const DenseGroup& group, const Unit& unit, const Gain* __restrict__ matrix,
                           const typename S::Value* now, const Epilogue& epilogue) {
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
  reduce_scatter<S>(lanes, at.part, sum);
  const std::int32_t first = at.tile * kTile + at.first_own();
  own_outs(lanes, [&](auto own) {
#pragma unroll
    for (std::int32_t k = 0; k < decltype(own)::value; ++k) {
      if (!at.real || at.part >= kTile || first + k >= group.width) continue;
      const auto place = view.place(group, at.state, first + k);
      if (place.label != view.K) epilogue.send(place, epilogue.weight(bytes_of<P>(place.label)), sum[k]);
    }
  });
}

template <class S, class View, class Gain, class Epilogue>
__device__ void sparse_unit(const View& view, std::int32_t first, const Gain* __restrict__ sparse_matrix,
                            const typename S::Value* now, const Epilogue& epilogue) {
  using P = typename S::Value;
  const std::int32_t i = first + static_cast<std::int32_t>(threadIdx.x % 32);
  if (i >= view.sparse) return;
  auto sum = S::zero();
  for (std::int32_t s = 0; s < view.sparse_slots; ++s) {
    const auto from = view.sparse_source[s * view.sparse + i];
    auto x = now[from.x];
    if (view.two) x = S::plus(x, now[from.y]);
    sum = S::plus_times(sum, x, static_cast<P>(sparse_matrix[s * view.sparse + i]));
  }
  const std::int32_t out = view.first_sparse + i;
  const auto place = view.sparse_place(out);
  if (place.label != view.K) epilogue.send(place, epilogue.weight(bytes_of<P>(place.label)), sum);  // else padding
}

// A step has three parts, so that other work can hide their latency:
//   load      reads the cells
//   multiply  computes products
//   finish    the rest, with epilogue
// Steps by a general schedule do everything in the last.
struct Empty {};

// Steps by a general schedule, which reads its tables in every step. epilogue.send(view.place(out),
// epilogue.weight(label), sum) takes each out's sum over its slots; the label is an offset into an array of P, in
// bytes. Gain: the type in which matrices are stored.
template <class S, class View, class Gain = typename S::Value>
struct GeneralSteps {
  using P = typename S::Value;
  static constexpr bool kInRegisters = false;
  const View& view;
  const Gain *matrix, *sparse_matrix;

  __device__ Empty load(const P*) const { return {}; }
  __device__ Empty multiply(Empty) const { return {}; }

  template <class Epilogue>
  __device__ void finish(Empty, const P* now, const Epilogue& epilogue) const {
    const std::int32_t warp = threadIdx.x / 32;
    const DeviceSchedule& schedule = view.schedule;
    if (warp >= schedule.warps) return;
    for (std::int32_t u = schedule.warp_begin[warp]; u < schedule.warp_begin[warp + 1]; ++u) {
      const Unit unit = schedule.unit[u];
      const P* from = now + view.first_cell(unit);
      if (unit.group < 0) {
        sparse_unit<S>(view, unit.first, sparse_matrix, from, epilogue);
      } else if (view.two) {
        dense_unit<S, true>(view, view.group[unit.group], unit, matrix, from, epilogue);
      } else {
        dense_unit<S, false>(view, view.group[unit.group], unit, matrix, from, epilogue);
      }
    }
  }

  // Sums of more than two cells, in cells of their own.
  __device__ void sum_fan_ins(P* now) const {
    view.each_fan_in([&](std::int32_t first, std::int32_t last, std::int32_t from, std::int32_t cell) {
      P sum = S::zero();
      for (std::int32_t j = first; j < last; ++j) sum = S::plus(sum, now[from + view.fan_in_source[j]]);
      now[cell] = sum;
    });
  }
};

// Copies a step's cells to global memory in vectors of four; `count` is a multiple of four.
template <class P>
__device__ void copy_out(P* __restrict__ to, const P* from, std::int32_t count, std::int32_t thread) {
#pragma unroll 1
  for (std::int32_t c = 4 * thread; c < count; c += 4 * static_cast<std::int32_t>(blockDim.x)) {
    P four[4];
    load4(from + c, four);
    stream_store4(to + c, four);
  }
}

// Calls act(view, steps) for a block that uses the general schedule: alone, or as one of `blocks` in a cluster.
template <class S, Storage kStorage, class Gain, class Act>
__device__ void with_general_steps(const DeviceStep& layout, std::int32_t blocks, const Gain* matrix,
                                   const Gain* sparse, const Act& act) {
  if constexpr (kStorage == Storage::cluster) {
    const ClusterView view(layout, blocks);
    act(view, GeneralSteps<S, ClusterView, Gain>{view, matrix, sparse});
  } else {
    const StepView view(layout);
    act(view, GeneralSteps<S, StepView, Gain>{view, matrix, sparse});
  }
}

}  // namespace regccrf::cuda
