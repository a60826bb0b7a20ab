// A scan over time: the steps of a long sequence under a small automaton, shared out among the blocks of a device. On
// nodes a step is one small matrix: alpha[s] = (alpha[s - 1] · A) ∘ w[s], with A[i, j] the weight of the transition if
// node j can follow node i, else zero. A block multiplies out the steps of a piece, P = A · D · A · D · …, D = diag(w),
// side by side with the others. The products give alpha and beta where pieces meet (expectation/scan.cu), or the best
// node there (decode/scan_viterbi.cu), and with those every piece can be done on its own.
#pragma once

#include <cuda_pipeline.h>

#include <type_traits>

#include "inference/cuda/bounds.h"
#include "inference/cuda/prepare.h"
#include "inference/cuda/step/pieces.h"
#include "inference/cuda/step/step.h"

namespace regccrf::cuda {

Pieces choose_pieces(const DeviceConstraint& constraint, const Batch& batch, const ScanCosts& costs);

// What the scan leaves for the pass. `alpha` and `beta` have the emissions of their own position and a largest number
// of 1 … 2; the true ones are these times 2^exponent.
struct Boundaries {
  std::int32_t width = 0;                    // numbers of a boundary: one for each node, and padding
  double *alpha = nullptr, *beta = nullptr;  // [B, pieces, width] on nodes, where piece 1, 2, … begins
  std::int64_t* exponent[2] = {};            // [B, pieces]
  std::int32_t* lost = nullptr;              // [B, pieces] whether alpha at this piece's end may lack what is too small
  std::int32_t* grown = nullptr;             // [B] by how many bits that may have grown, by the pass
};

// What is lost in the middle of a piece may have grown before its end.
enum Lost : std::int32_t { none, at_end, in_the_middle };

struct ScanMemory {
  Boundaries boundaries;
  double* products[2];      // [B, pieces, width, width], and these turned
  std::int32_t* exponents;  // [B, pieces, width] of the products' rows
  std::uint64_t* reach;     // [B, pieces, Q] the states that gold leads to from each; null: no gold
  std::int32_t* dead_at;    // [B, pieces, Q] where it leads nowhere
};
ScanMemory allocate_scan(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch, const Pieces& pieces,
                         bool gold);

// `trust`: [B] cleared. `leaves`: [B] where gold leaves the language; -1: nowhere.
void run_scan(const DeviceConstraint::Impl& c, const Batch& batch, const Pieces& pieces, const Prepared<double>& scores,
              const ScanMemory& work, std::int32_t* trust, std::int32_t* leaves, cudaStream_t stream);

// What the kernels of a scan read.
struct PieceArgs {
  DeviceTopology topology;
  Batch batch;
  Pieces pieces;
  Prepared<double> scores;
  __device__ const double* emissions(std::int64_t b) const {  // of position 0
    return scores.emissions + b * batch.length * (topology.K + 1);
  }
};

// A sequence's piece: the positions between which its steps lead. `of`: how many pieces it has; 0 without positions.
struct Piece {
  std::int32_t number, of, first, last;
  __device__ Piece(std::int32_t T, std::int32_t steps, std::int32_t n)
      : number(n), of(T < 1 ? 0 : max(T - 2, 0) / steps + 1), first(n * steps) {
    last = number + 1 < of ? first + steps : T - 1;
  }
  __device__ bool exists() const { return number < of; }
};

// The score of node j behind node i; -inf where it cannot follow, and for padding.
__device__ inline double step_score(const DeviceTopology& top, const Batch& batch, std::int32_t i, std::int32_t j) {
  if (i >= top.nodes || j >= top.nodes) return -INFINITY;
  const std::int64_t pair = std::int64_t{top.node_label[i]} * top.K + top.node_label[j];
  for (std::int32_t k = top.from_begin[i]; k < top.from_begin[i + 1]; ++k)
    if (top.arrival_state[top.from_arrival[k]] == top.node_state[j]) return score_at(batch.transitions, pair);
  return -INFINITY;
}

// Kernels are made for some numbers of tiles, of 8 nodes each.
inline std::int32_t tiles_of(std::int32_t nodes) {
  for (std::int32_t tiles : {2, 4, 6, 8})
    if (nodes <= 8 * tiles) return tiles;
  return kScanNodes / 8;
}
// act(tiles) with a constant.
template <class Act>
void with_tiles(std::int32_t tiles, const Act& act) {
  if (tiles == 2) act(std::integral_constant<std::int32_t, 2>{});
  if (tiles == 4) act(std::integral_constant<std::int32_t, 4>{});
  if (tiles == 6) act(std::integral_constant<std::int32_t, 6>{});
  if (tiles == 8) act(std::integral_constant<std::int32_t, 8>{});
  if (tiles == 12) act(std::integral_constant<std::int32_t, 12>{});
}

constexpr std::int32_t kStaged = 8;  // steps whose weights are on chip

// The weights of the piece's steps, column by column, kStaged steps at a time and as many ahead. By the whole
// block, whose threads are a multiple of the columns.
template <std::int32_t kTiles>
class PieceWeights {
 public:
  static constexpr std::int32_t kWidth = 8 * kTiles;
  static constexpr std::int32_t kBytes = 2 * kStaged * kWidth * static_cast<std::int32_t>(sizeof(double));

  // `emissions`: of position 0; `room`: kBytes.
  __device__ PieceWeights(const DeviceTopology& top, const double* emissions, const Piece& piece, char* room)
      : room_(reinterpret_cast<double*>(room)),
        from_(emissions + (piece.first + std::int64_t{1}) * (top.K + 1)),
        row_(top.K + 1),
        count_(piece.last - piece.first) {
    const std::int32_t node = threadIdx.x % kWidth;
    label_ = node < top.nodes ? top.node_label[node] : top.K;
    load(0);
  }
  // Of step n, which comes behind n - 1. Has barriers where it needs them.
  __device__ const double* of(std::int32_t n) {
    if (n % kStaged == 0) {
      __syncthreads();
      load(n + kStaged);
      __pipeline_wait_prior(1);
      __syncthreads();
    }
    return room_ + n % (2 * kStaged) * kWidth;
  }

 private:
  __device__ void load(std::int32_t first) {
    const std::int32_t together = static_cast<std::int32_t>(blockDim.x) / kWidth;
    for (std::int32_t n = first + static_cast<std::int32_t>(threadIdx.x) / kWidth; n < min(first + kStaged, count_);
         n += together)
      __pipeline_memcpy_async(room_ + n % (2 * kStaged) * kWidth + threadIdx.x % kWidth,
                              from_ + std::int64_t{n} * row_ + label_, sizeof(double));
    __pipeline_commit();
  }

  double* room_;
  const double* from_;
  std::int32_t row_, count_, label_;
};

// --- products of steps, over a semiring

constexpr std::int32_t kZeroExponent = -0x40000000;  // of a row of zeros

// Sums of products. Every row has a scale of its own, since what begins in one node may lie thousands of orders of
// magnitude below what begins in another, and yet be all that is legal.
struct ScaledSum : SumProduct<double> {
  static constexpr bool kScaled = true;
  static __device__ double one() { return 1; }
  static __device__ double times(double x, double y) { return x * y; }
  static __device__ double transition(double score, double shift) { return exp(score - shift); }

  // Takes off the scale of a row, of which 16 lanes have some columns each, and counts it. What is too small to be
  // exact is 0; returns whether something was.
  template <std::int32_t kColumns>
  static __device__ bool scale(double (&x)[kColumns], std::int32_t& exponent) {
    bool lost = false;
    unsigned largest = 0;
#pragma unroll
    for (double& value : x) {
      const bool small = high_word(value) < high_word(Bounds<double>::inexact);
      lost |= small && value > 0;
      value = small ? 0 : value;
      largest = max(largest, high_word(value));
    }
    for (int bit = 1; bit < 16; bit *= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, bit));
    std::int32_t e;
    const double by = scale_of(largest, e, double{});
    exponent = largest ? exponent + e : kZeroExponent;
#pragma unroll
    for (double& value : x) value *= by;
    return lost;
  }
};
// Maxima of sums, which need no scale.
struct Maximum : MaxPlus {
  static constexpr bool kScaled = false;
  static __device__ double one() { return 0; }
  static __device__ double times(double x, double y) { return x + y; }
  static __device__ double transition(double score, double) { return score; }
  template <std::int32_t kColumns>
  static __device__ bool scale(double (&)[kColumns], std::int32_t&) {
    return false;
  }
};

struct ProductArgs : PieceArgs {
  double* products;         // [B, pieces, width, width]
  double* transposed;       // the same, or null
  std::int32_t* exponents;  // [B, pieces, width] of rows, where scaled
  std::int32_t* lost;       // [B, pieces] as Lost, where scaled
};

template <std::int32_t kTiles>
struct ProductShared {
  static constexpr std::int32_t kWidth = 8 * kTiles, kRow = kWidth + 2;  // half warps read rows in different banks
  char weights[PieceWeights<kTiles>::kBytes];
  double transition[kWidth][kWidth];
  double row[kWidth][kRow];
};
inline int product_bytes(std::int32_t nodes) {
  std::size_t bytes = 0;
  with_tiles(tiles_of(nodes), [&](auto tiles) { bytes = sizeof(ProductShared<decltype(tiles)::value>); });
  return static_cast<int>(bytes);
}

// A warp has four rows of the product, which need nothing of each other; a lane has every 16th column of two of them.
template <class S, std::int32_t kTiles>
class PieceProduct {
 public:
  __device__ PieceProduct(const ProductArgs& a, const Piece& piece, ProductShared<kTiles>& shared)
      : a_(a),
        piece_(piece),
        shared_(shared),
        column_(static_cast<std::int32_t>(threadIdx.x) % 16),
        first_(static_cast<std::int32_t>(threadIdx.x) / 16 * kRows) {}

  __device__ void run() {
    for (std::int32_t n = threadIdx.x; n < kWidth * kWidth; n += blockDim.x) {
      const std::int32_t i = n / kWidth, j = n % kWidth;
      shared_.transition[i][j] = S::transition(step_score(a_.topology, a_.batch, i, j), a_.scores.shifts[0]);
      shared_.row[i][j] = i == j ? S::one() : S::zero();
    }
    PieceWeights<kTiles> weights(a_.topology, a_.emissions(blockIdx.y), piece_, shared_.weights);
    __syncthreads();
    for (std::int32_t n = 0; n < piece_.last - piece_.first; ++n) step(weights.of(n));
    write();
  }

 private:
  static constexpr std::int32_t kWidth = 8 * kTiles, kColumns = kWidth / 16, kRows = 2;

  __device__ void step(const double* weight) {
    double sum[kRows][kColumns];
#pragma unroll
    for (std::int32_t n = 0; n < kRows * kColumns; ++n) sum[n / kColumns][n % kColumns] = S::zero();
#pragma unroll 4
    for (std::int32_t k = 0; k < kWidth; k += 2) add_products(k, sum);
    __syncwarp();
#pragma unroll
    for (std::int32_t r = 0; r < kRows; ++r) {
#pragma unroll
      for (std::int32_t c = 0; c < kColumns; ++c) sum[r][c] = S::times(sum[r][c], weight[column_ + 16 * c]);
      lost_ |= S::scale(sum[r], exponent_[r]);
#pragma unroll
      for (std::int32_t c = 0; c < kColumns; ++c) shared_.row[first_ + r][column_ + 16 * c] = sum[r][c];
    }
    __syncwarp();
  }

  // Of two neighbouring nodes, k and the next.
  __device__ void add_products(std::int32_t k, double (&sum)[kRows][kColumns]) const {
    double2 from[kRows];
#pragma unroll
    for (std::int32_t r = 0; r < kRows; ++r) from[r] = *reinterpret_cast<const double2*>(&shared_.row[first_ + r][k]);
#pragma unroll
    for (std::int32_t c = 0; c < kColumns; ++c) {
      const double x = shared_.transition[k][column_ + 16 * c], y = shared_.transition[k + 1][column_ + 16 * c];
#pragma unroll
      for (std::int32_t r = 0; r < kRows; ++r)
        sum[r][c] = S::plus_times(S::plus_times(sum[r][c], from[r].x, x), from[r].y, y);
    }
  }

  __device__ void write() {
    const std::int64_t at = std::int64_t{blockIdx.y} * a_.pieces.count + piece_.number;
#pragma unroll
    for (std::int32_t n = 0; n < kRows * kColumns; ++n) {
      const std::int32_t row = first_ + n / kColumns, column = column_ + 16 * (n % kColumns);
      a_.products[(at * kWidth + row) * kWidth + column] = shared_.row[row][column];
      if (S::kScaled) a_.transposed[(at * kWidth + column) * kWidth + row] = shared_.row[row][column];
    }
    if constexpr (S::kScaled) {
      const bool lost = __syncthreads_or(lost_) != 0;
      if (threadIdx.x == 0) a_.lost[at] = lost ? Lost::in_the_middle : Lost::none;
      for (std::int32_t r = 0; r < kRows && column_ == 0; ++r) a_.exponents[at * kWidth + first_ + r] = exponent_[r];
    }
  }

  const ProductArgs& a_;
  const Piece& piece_;
  ProductShared<kTiles>& shared_;
  const std::int32_t column_, first_;
  std::int32_t exponent_[kRows] = {};
  bool lost_ = false;
};

template <class S, std::int32_t kTiles>
__global__ void __launch_bounds__(64 * kTiles, 1) product_kernel(const __grid_constant__ ProductArgs a) {
  launch_dependents();
  const Piece piece(a.scores.length[blockIdx.y], a.pieces.steps, static_cast<std::int32_t>(blockIdx.x));
  if (piece.exists())
    PieceProduct<S, kTiles>(a, piece, *reinterpret_cast<ProductShared<kTiles>*>(shared_memory())).run();
}

// A block for each piece of each sequence.
template <class S>
void multiply_steps(const ProductArgs& args, cudaStream_t stream) {
  with_tiles(tiles_of(args.topology.nodes), [&](auto constant) {
    constexpr std::int32_t tiles = decltype(constant)::value;
    launch_kernel(
        product_kernel<S, tiles>,
        {.x = args.pieces.count, .y = args.batch.size, .threads = 64 * tiles, .bytes = sizeof(ProductShared<tiles>)},
        stream, args, "multiplying steps");
  });
}

}  // namespace regccrf::cuda
