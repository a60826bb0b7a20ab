// Steps of small automata, with everything but the cells in registers.
//
// Such a step is short and depends on the one before, so what counts is the number of dependent instructions.
// RegisterSteps has no branches that diverge: threads without an out read a zero and write to the scratch cell.
#pragma once

#include "inference/cuda/step/step.h"
#include "inference/cuda/warp.h"

namespace regccrf::cuda {

// Two places in arrays of P, in one register: in bytes where 16 bits hold those.
template <class P>
struct Places {
  static constexpr std::uint32_t kUnit = sizeof(P) == 4 ? 4 : 1;
  std::uint32_t bits;
  static __device__ Places of(std::int32_t x, std::int32_t y) {
    return {static_cast<std::uint32_t>(x) * kUnit | static_cast<std::uint32_t>(y) * kUnit << 16};
  }
  __device__ std::uint32_t x() const { return (bits & 0xffff) * (sizeof(P) / kUnit); }
  __device__ std::uint32_t y() const { return (bits >> 16) * (sizeof(P) / kUnit); }
};

// Outs, each a cell and a label. Weights are loaded first, all at once, to hide their latency.
template <std::int32_t kCount, class P, class Epilogue>
__device__ void store_all(const Places<P>* out, const P* sum, const Epilogue& epilogue) {
  P weight[kCount];
#pragma unroll
  for (std::int32_t k = 0; k < kCount; ++k) weight[k] = epilogue.weight(out[k].y());
#pragma unroll
  for (std::int32_t k = 0; k < kCount; ++k) epilogue.store(out[k].x(), weight[k], sum[k]);
}

// The sparse outs of a thread, in registers; every blockDim.x-th is its own.
template <class S>
class SparseOuts {
 public:
  using P = typename S::Value;

  __device__ explicit SparseOuts(const DeviceStep& layout) {
    rounds_ = ceil_div(layout.sparse, static_cast<std::int32_t>(blockDim.x));
#pragma unroll
    for (std::int32_t k = 0; k < kSparsePerThread; ++k) {
      const std::int32_t i = static_cast<std::int32_t>(threadIdx.x + k * blockDim.x), out = layout.first_sparse + i;
      out_[k] = Places<P>::of(layout.scratch(), layout.K);
      from_[k] = Places<P>::of(layout.cells, layout.cells);
      if (i >= layout.sparse) continue;
      out_[k] = Places<P>::of(layout.stored[out], layout.label[out]);
      const Source source = layout.sparse_source[i];
      from_[k] =
          Places<P>::of(source.x, layout.sparse_slots > 1 ? layout.sparse_source[layout.sparse + i].x : source.y);
    }
  }
  __device__ void load_gains(const DeviceStep& layout, const P* matrix) {
#pragma unroll
    for (std::int32_t k = 0; k < kSparsePerThread; ++k) {
      const std::int32_t i = static_cast<std::int32_t>(threadIdx.x + k * blockDim.x);
      gain_[k][0] = i < layout.sparse ? matrix[i] : S::zero();
      gain_[k][1] = i < layout.sparse ? matrix[layout.sparse_slots > 1 ? layout.sparse + i : i] : S::zero();
    }
  }

  template <class Epilogue>
  __device__ void operator()(const P* now, const Epilogue& epilogue) const {
    if (rounds_ > 2) {
      step<kSparsePerThread>(now, epilogue);
    } else if (rounds_ > 0) {
      step<2>(now, epilogue);
    }
  }

 private:
  template <std::int32_t kCount, class Epilogue>
  __device__ void step(const P* now, const Epilogue& epilogue) const {
    P x[kCount], y[kCount];
#pragma unroll
    for (std::int32_t k = 0; k < kCount; ++k) {
      x[k] = value_of(now, from_[k].x());
      y[k] = value_of(now, from_[k].y());
    }
#pragma unroll
    for (std::int32_t k = 0; k < kCount; ++k)
      x[k] = S::plus_times(S::plus_times(S::zero(), x[k], gain_[k][0]), y[k], gain_[k][1]);
    store_all<kCount>(out_, x, epilogue);
  }

  std::int32_t rounds_;
  Places<P> out_[kSparsePerThread], from_[kSparsePerThread];  // cell and label; two sources
  P gain_[kSparsePerThread][kSparseTerms];
};

// Steps with everything but the cells in registers.
template <class S, std::int32_t kSlots, std::int32_t kRepeats>
class RegisterSteps {
 public:
  using P = typename S::Value;
  static constexpr bool kInRegisters = true;
  static constexpr std::int32_t kOuts = kTile / 2;  // of a thread, since two partition a tile at least

  __device__ RegisterSteps(const DeviceStep& layout, const P* matrix, const P* sparse_matrix) : RegisterSteps(layout) {
    load_gains(layout, matrix, sparse_matrix);
  }

  // The same in two parts, for matrices that come later.
  __device__ explicit RegisterSteps(const DeviceStep& layout) : sparse_(layout) {
    load_outs(layout);
    lanes_ = reduce_max(lanes_);  // the same for all lanes, but now the compiler knows it: branches are uniform
    plane_ = reduce_max(plane_);
  }
  __device__ void load_gains(const DeviceStep& layout, const P* matrix, const P* sparse_matrix) {
    sparse_.load_gains(layout, sparse_matrix);
    if (lanes_ == 0) return;
    const Unit unit = layout.in_registers.unit[threadIdx.x / 32];
    const DenseGroup group = layout.group[unit.group];
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

  // The same from gains in the order of StepLayout::gain_entry.
  __device__ void load_gains_by_thread(const DeviceStep& layout, const P* gains, const P* sparse_matrix) {
    sparse_.load_gains(layout, sparse_matrix);
    if (lanes_ == 0) return;
    const P* first = gains + first_gain_;
#pragma unroll
    for (std::int32_t k = 0; k < kSlots; ++k) {
      load4(first + k * gain_row_, gain_[k]);
      load4(first + k * gain_row_ + (gain_row_ - 4) / 2, gain_[k] + 4);
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

  template <class Epilogue>
  __device__ void finish(Sums& sums, const P* now, const Epilogue& epilogue) const {
    finish_tiles(sums, now, epilogue);
    sparse(now, epilogue);
  }

  // Its two parts, in any order. The states behind the first wait until here.
  template <class Epilogue>
  __device__ void finish_tiles(Sums& sums, const P* now, const Epilogue& epilogue) const {
    if (lanes_ == 0) return;
#pragma unroll
    for (std::int32_t r = 0; r < kRepeats; ++r) {
      if (r > 0) sums = multiply(load(now, r));
      own_outs<kOuts>(lanes_, [&](auto own) {
        constexpr std::int32_t count = decltype(own)::value;
        P weight[count];  // loaded first, to hide their latency
#pragma unroll
        for (std::int32_t k = 0; k < count; ++k) weight[k] = epilogue.weight(out_[r][k].y());
        reduce_scatter<S>(count == 1 ? lanes_ : kTile / count, part_, sums.sum);
#pragma unroll
        for (std::int32_t k = 0; k < count; ++k) epilogue.store(out_[r][k].x(), weight[k], sums.sum[k]);
      });
    }
  }
  template <class Epilogue>
  __device__ void sparse(const P* now, const Epilogue& epilogue) const {
    sparse_(now, epilogue);
  }

 private:
  __device__ void load_outs(const DeviceStep& layout) {
    const std::int32_t warp = threadIdx.x / 32;
    if (warp >= layout.in_registers.units) return;
    const Unit unit = layout.in_registers.unit[warp];
    const DenseGroup group = layout.group[unit.group];
    const TileOf at(group.band, group.tiles, unit.first, unit.lanes);
    lanes_ = unit.lanes;
    part_ = at.part;
    plane_ = group.planes > 1 ? bytes_of<P>(group.states * group.stride) : 0;
    first_gain_ = group.first_gain + (at.tile * unit.lanes + at.part) * 4;
    gain_row_ = gain_row(group.tiles, unit.lanes);
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
        out_[r][k] =
            own ? Places<P>::of(layout.stored[out], layout.label[out]) : Places<P>::of(layout.scratch(), layout.K);
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

  std::int32_t lanes_ = 0, part_ = 0, first_gain_ = 0, gain_row_ = 0;
  std::uint32_t row_[kRepeats] = {}, plane_ = 0;  // where its slots' cells begin; from there to their second sources
  P gain_[kSlots][kTile];
  Places<P> out_[kRepeats][kOuts];  // cell and label of its outs
  SparseOuts<S> sparse_;
};

// Sums of products in double with the tensor cores; the matrices are in registers.
class TensorSteps {
 public:
  static constexpr bool kInRegisters = true;

  __device__ TensorSteps(const DeviceStep& layout, const double* matrix, const double* sparse_matrix)
      : sparse_(layout) {
    sparse_.load_gains(layout, sparse_matrix);
    load_columns(layout, matrix);
  }

  __device__ Empty load(const double*) const { return {}; }
  __device__ Empty multiply(Empty) const { return {}; }

  template <class Epilogue>
  __device__ void finish(Empty, const double* now, const Epilogue& epilogue) const {
    if (tiles_ > 0) {  // the same for a whole warp
      if (columns_ == 1) {
        tile_step<1>(now, 0, epilogue);
        if (tiles_ > 1) tile_step<1>(now, 1, epilogue);
      } else {
        tile_step<2>(now, 0, epilogue);
        if (tiles_ > 1) tile_step<2>(now, 1, epilogue);
      }
    }
    sparse_(now, epilogue);
  }

 private:
  static constexpr std::int32_t kSteps = kTensorSlots / 4,
                                kTogether = 8;  // of four slots; those that are loaded at once
  __device__ void load_columns(const DeviceStep& layout, const double* matrix) {
    const std::int32_t warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, column = threadIdx.x % 4;
    if (warp >= layout.tensor_units) return;
    const TensorUnit unit = layout.tensor[warp];
    const DenseGroup group = layout.group[unit.group];
    tiles_ = unit.tiles;
    columns_ = unit.columns;
    steps_ = ceil_div(group.slots, 4);
    plane_ = group.planes > 1 ? group.states * group.stride : 0;
#pragma unroll
    for (std::int32_t c = 0; c < 2; ++c) {
      const std::int32_t o = unit.out + 8 * c + row;
#pragma unroll
      for (std::int32_t s = 0; s < kSteps; ++s) {
        const std::int32_t i = 4 * s + column;
        const bool real = c < unit.columns && i < group.slots && o < group.width;
        gain_[c][s] = real ? matrix[group.first_entry + i * group.width + o] : 0.0;
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
        out_[t][k] = real ? Places<double>::of(layout.stored[out], layout.label[out])
                          : Places<double>::of(layout.scratch(), layout.K);
      }
    }
  }

  // Two accumulators where there is one column of tiles only, so that products do not depend on each other.
  template <std::int32_t kColumns, class Epilogue>
  __device__ void tile_step(const double* now, std::int32_t t, const Epilogue& epilogue) const {
    const double* row = now + row_[t];
    double sum[2][2] = {};
#pragma unroll
    for (std::int32_t first = 0; first < kSteps; first += kTogether) {
      if (first >= steps_) break;
      double x[kTogether];
#pragma unroll
      for (std::int32_t s = 0; s < kTogether; ++s) x[s] = first + s < steps_ ? row[4 * (first + s)] : 0.0;
      if (plane_ > 0) {
#pragma unroll
        for (std::int32_t s = 0; s < kTogether; ++s) x[s] += first + s < steps_ ? row[plane_ + 4 * (first + s)] : 0.0;
      }
#pragma unroll
      for (std::int32_t s = 0; s < kTogether; ++s) {
        if constexpr (kColumns == 1) {
          multiply_tile(sum[s % 2], x[s], gain_[0][first + s]);
        } else {
          multiply_tile(sum[0], x[s], gain_[0][first + s]);
          multiply_tile(sum[1], x[s], gain_[1][first + s]);
        }
      }
    }
    if constexpr (kColumns == 1) {
      for (int k = 0; k < 2; ++k) sum[0][k] += sum[1][k];
    }
    store_all<2 * kColumns>(out_[t], sum[0], epilogue);
  }

  std::int32_t tiles_ = 0, columns_ = 0, steps_ = 0, plane_ = 0;
  std::int32_t row_[2];       // where its lane's slots' cells begin
  double gain_[2][kSteps];    // as multiply_tile takes them
  Places<double> out_[2][4];  // cell and label of its outs
  SparseOuts<SumProduct<double>> sparse_;
};

}  // namespace regccrf::cuda
