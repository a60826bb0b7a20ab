// What a block of the combine needs (combine.cu): the units that positions are added up in, and a warp tile of bigrams
// on the tensor cores.
#pragma once

#include "inference/cuda/block.h"
#include "inference/cuda/bounds.h"
#include "inference/cuda/expectation/expectation.h"
#include "inference/cuda/expectation/gold.h"
#include "inference/cuda/warp.h"

namespace regccrf::cuda {

constexpr int kTileRows = kWarpTileRows / 8, kTileColumns = kWarpTileColumns / 8;  // of a warp tile; a tile is 8 × 8
static_assert(kTileRows == 2);
constexpr int kMostChunk = 4;  // positions

// 2^-e
__device__ inline double exp2_of_minus(std::int32_t e) { return __hiloint2double((1023 - e) << 20, 0); }

__device__ inline std::int32_t warp_of() { return static_cast<std::int32_t>(threadIdx.x / 32); }
__device__ inline std::int32_t lane_of() { return static_cast<std::int32_t>(threadIdx.x % 32); }

// z times the scales that the pass divided out is the same at all positions but for rounding. So the positions of a
// chunk are added up in one unit, by the exponents alone: the one in which none of them grows. The z itself is left for
// `finish`.
struct ChunkScales {
  double scale[kMostChunk];  // of y, so that bigrams add up to the z of their position
  double unit[kMostChunk];   // of those, so that they add up to the same at each
  double least[kMostChunk];  // z below this is not to be trusted
  double over_first;         // 1 over that of the first position's z
};

// For a chunk that begins at `at` of [B, T], in sequence b; `bigrams`: positions where one begins. By one warp, a
// position a lane.
template <class P>
__device__ void set_scales(ChunkScales& to, const Trellis<P>& trellis, std::int64_t at, std::int64_t b,
                           std::int32_t bigrams) {
  constexpr std::int32_t room = 60;  // for sums of products of alpha's largest
  const std::int32_t most = Bounds<P>::most_exponent, more = Bounds<double>::most_exponent, j = lane_of();
  const bool there = j < bigrams;
  // What the pass divided out in the step from this position to the next, forwards, and in its own, backwards.
  const std::int32_t alpha = there ? trellis.exponent[0][at + j + 1] : 0,
                     beta = there ? trellis.exponent[1][at + j] : 0;
  std::int32_t unit = alpha - beta;  // z of the first position over that of this one
#pragma unroll
  for (int n = 1; n < kMostChunk; n *= 2) {
    const std::int32_t before = __shfl_up_sync(kAllLanes, unit, n);
    if (j >= n) unit += before;
  }
  unit -= alpha - beta;
  const std::int32_t largest = reduce_max(there ? max(unit, 0) : 0);
  const std::int32_t less = there ? room + largest - unit : 0, scale = beta + Bounds<P>::beta_peak;
  const bool fits = largest + room <= more && less <= more && abs(scale) <= most && scale + less <= more;
  if (j < kMostChunk) {
    to.unit[j] = exp2_of_minus(min(less, more));
    to.scale[j] = exp2_of_minus(min(max(scale, -most), most));
    // Products are of alpha, and its largest is 2^alpha_peak once the next step has taken its part off.
    to.least[j] = fmax(there ? Bounds<P>::least_z * exp2_of_minus(-alpha) : 0, Bounds<P>::least_product);
  }
  if (j == 0) to.over_first = exp2_of_minus(-min(largest + room, more));
  if (!fits) trellis.trust[b] = Trust::untrusted;
}

// Numbers of a warp tile in the layout of mma.m8n8k4: a lane has row lane / 4, columns 2 · (lane % 4) and the next, of
// each tile.
template <class P>
struct Tiles {
  P at[kTileRows][kTileColumns][2];

  // act(two numbers, row, column of the first); both columns are in a warp tile or neither is
  template <class Act>
  __device__ void each(const Act& act) {
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
#pragma unroll
      for (int c = 0; c < kTileColumns; ++c) act(at[r][c], 8 * r + lane_of() / 4, 8 * c + 2 * (lane_of() % 4));
    }
  }
};

// Adds a position. `m`, `y`: in the warp tile's first state. Slots and outs past a state's own are numbers of others,
// and go to sums that nobody wants.
template <class P>
__device__ void multiply_warp_tile(const WarpTile& tile, const P* m, const P* y, double scale, Tiles<double>& sum) {
  const std::int32_t row = lane_of() / 4, k = lane_of() % 4;
  // Lanes with k ≥ 2 load the lower 8 rows first: states k and k + 2 are often a multiple of 32 numbers apart, and
  // would meet in a bank.
  const bool swaps = k >= 2;
  const std::int32_t other = swaps ? -8 : 8, whole = tile.states / 4, left = tile.states % 4;
  // Of four states a lane has the k-th, or the last.
  const std::int32_t back = k >= left ? k + 1 - left : 0;  // from there, if only some of the four are left
  m += k * tile.slots + row + (swaps ? 8 : 0);
  y += k * tile.width + row;
  struct Numbers {
    P m[2], y[kTileColumns];
  };
  const auto load = [&] {
    Numbers x;
    x.m[0] = m[0];
    x.m[1] = m[other];
#pragma unroll
    for (int c = 0; c < kTileColumns; ++c) x.y[c] = y[8 * c];
    return x;
  };
  const auto multiply = [&](const Numbers& x, double by) {
    const double upper = static_cast<double>(swaps ? x.m[1] : x.m[0]) * by,
                 lower = static_cast<double>(swaps ? x.m[0] : x.m[1]) * by;
    double z[kTileColumns];
#pragma unroll
    for (int c = 0; c < kTileColumns; ++c) z[c] = static_cast<double>(x.y[c]);
#pragma unroll
    for (int c = 0; c < kTileColumns; ++c) multiply_two_tiles(sum.at[0][c], sum.at[1][c], upper, lower, z[c]);
  };
  if (whole > 0) {  // the next ones are on their way while these are multiplied
    Numbers ahead = load();
#pragma unroll 1
    for (std::int32_t n = whole - 1; n > 0; --n) {
      const Numbers now = ahead;
      m += 4 * tile.slots;
      y += 4 * tile.width;
      ahead = load();
      multiply(now, scale);
    }
    multiply(ahead, scale);
    m += 4 * tile.slots;
    y += 4 * tile.width;
  }
  if (left == 0) return;
  m -= back * tile.slots;
  y -= back * tile.width;
  multiply(load(), k < left ? scale : 0.0);
}

// Two numbers side by side, for one store.
template <class P>
struct alignas(2 * sizeof(P)) Adjacent {
  P x, y;
};
// A warp tile's sums go where they belong in a chunk's. False if one is too large to be trusted.
template <class P>
__device__ bool write_warp_tile(const WarpTile& tile, Tiles<double>& sum, P* sums) {
  bool small = true;
  sum.each([&](const double(&x)[2], std::int32_t i, std::int32_t o) {
    if (i >= tile.rows || o >= tile.columns) return;
    const Adjacent<P> two{static_cast<P>(x[0]), static_cast<P>(x[1])};
    small = small && two.x < Bounds<P>::most && two.y < Bounds<P>::most;
    *reinterpret_cast<Adjacent<P>*>(sums + tile.entry + i * tile.width + o) = two;
  });
  return small;
}

}  // namespace regccrf::cuda
