// A scan over time: the steps of a long sequence under a small automaton, shared out among the blocks of a device
// (scan.cu; scan_viterbi.cu for max). Pieces of so many steps each are multiplied out side by side, which
// gives alpha and beta where they meet, and with those every piece can be walked on its own.
#pragma once

#include <cuda_pipeline.h>

#include <type_traits>

#include "inference/cuda/prepare.h"
#include "inference/cuda/step/pieces.h"

namespace regccrf::cuda {

Pieces choose_pieces(const DeviceConstraint& constraint, const Batch& batch, const ScanCosts& costs);
int viterbi_room(std::int32_t nodes);  // bytes of a block that multiplies steps for Viterbi

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
enum Lost : std::int32_t { nothing, at_end, in_the_middle };

struct ScanWork {
  Boundaries boundaries;
  double* products[2];      // [B, pieces, width, width], and these turned
  std::int32_t* exponents;  // [B, pieces, width] of the products' rows
  std::uint64_t* reach;     // [B, pieces, Q] the states that gold leads to from each; null: no gold
  std::int32_t* dies;       // [B, pieces, Q] where it leads nowhere
};
ScanWork cut_scan(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const Pieces& pieces, bool gold);

struct ScanOut {
  std::int32_t* flag;    // [B] cleared
  std::int32_t* leaves;  // [B] where gold leaves the language; -1: nowhere
};
void run_scan(const DeviceConstraint::Impl& c, const Batch& batch, const Pieces& pieces, const Prepared<double>& scores,
              const ScanWork& work, const ScanOut& out, cudaStream_t stream);

// A sequence's piece: the positions between which its steps lead. `of`: how many pieces it has; 0 without positions.
struct Piece {
  std::int32_t number, of, first, last;
  __device__ Piece(std::int32_t T, std::int32_t steps, std::int32_t n)
      : number(n), of(T < 1 ? 0 : max(T - 2, 0) / steps + 1), first(n * steps) {
    last = number + 1 < of ? first + steps : T - 1;
  }
  __device__ bool there() const { return number < of; }
};

// Whether node j can follow node i; neither can for padding.
__device__ inline bool follows(const DeviceTopology& top, std::int32_t i, std::int32_t j) {
  if (i >= top.nodes || j >= top.nodes) return false;
  for (std::int32_t k = top.from_begin[i]; k < top.from_begin[i + 1]; ++k)
    if (top.arrival_state[top.from_arrival[k]] == top.node_state[j]) return true;
  return false;
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
class Weights {
 public:
  static constexpr std::int32_t kWidth = 8 * kTiles;
  static constexpr std::int32_t kBytes = 2 * kStaged * kWidth * static_cast<std::int32_t>(sizeof(double));

  // `emissions`: of position 0; `room`: kBytes.
  __device__ Weights(const DeviceTopology& top, const double* emissions, const Piece& piece, char* room)
      : room_(reinterpret_cast<double*>(room)),
        from_(emissions + (piece.first + std::int64_t{1}) * (top.K + 1)),
        row_(top.K + 1),
        count_(piece.last - piece.first) {
    const std::int32_t node = threadIdx.x % kWidth;
    label_ = node < top.nodes ? top.node_label[node] : top.K;
    bring(0);
  }
  // Of step n, which comes behind n - 1. The block meets where it needs to.
  __device__ const double* of(std::int32_t n) {
    if (n % kStaged == 0) {
      __syncthreads();
      bring(n + kStaged);
      __pipeline_wait_prior(1);
      __syncthreads();
    }
    return room_ + n % (2 * kStaged) * kWidth;
  }

 private:
  __device__ void bring(std::int32_t first) {
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

}  // namespace regccrf::cuda
