// Where the pieces of a sequence meet (step/scan.h): alpha and beta there, without going through the steps one after
// the other. Behind the products of the pieces come two kernels:
//   cross     a block a sequence and direction: alpha[end] = alpha[begin] · P forwards, beta[begin] = P · beta[end]
//             backwards, piece by piece;
//   normalize gives these the form that the pass wants.
// Gold is followed likewise: a piece says which states its labels lead to from each state (map_states), then one warp
// puts the pieces together.
//
// Beta here keeps to no more than the truth, as bounds.h wants it; products lose what is too small, and say so.
// Where alpha may have lost something by that, the pass begins with as much more as that can have become, and sees at
// the end of each piece how much it grows.
#include <algorithm>
#include <cmath>

#include "inference/cuda/bounds.h"
#include "inference/cuda/expectation/expectation.h"
#include "inference/cuda/step/scan.h"
#include "inference/cuda/step/step.h"

namespace regccrf::cuda {

namespace {

constexpr std::int32_t kParts = 8;  // threads for each number of a boundary

struct ScanArgs : PieceArgs {
  ScanMemory work;
  std::int32_t *trust, *leaves;
};

__device__ std::int32_t exponent_of(double x) { return (__double2hiint(x) >> 20) - 1023; }
__device__ bool counts(double x) { return x >= 2.2250738585072014e-308; }
// x · 2^e, which is no large number, and 0 where one of these is below all numbers.
__device__ double times_power(double x, std::int32_t e) {
  return counts(x) ? x * __hiloint2double(max(1023 + e, 0) << 20, 0) : 0;
}

// Whether a number that is not 0 has become too small to be exact.
__device__ bool vanishes(double from, double x) { return from > 0 && x < Bounds<double>::inexact; }

// --- gold

// Which states a piece of gold leads to from each state, or where it leads nowhere. `at`: of the state in [B, pieces,
// Q].
__device__ void map_state(const ScanArgs& a, const Piece& piece, std::int32_t T, std::int32_t q, std::int64_t at) {
  const DeviceTopology& top = a.topology;
  const std::int32_t* gold = a.scores.gold + std::int64_t{blockIdx.y} * a.batch.length;
  const std::int32_t end = piece.number + 1 < piece.of ? piece.last : T;
  std::uint64_t set = std::uint64_t{1} << q;
  std::int32_t dead_at = -1;
  for (std::int32_t t = piece.first; t < end; ++t) {
    const std::int32_t label = gold[t];
    std::uint64_t next = 0;
    for (std::int32_t i = label >= 0 ? top.arc_begin[label] : 0; i < (label >= 0 ? top.arc_begin[label + 1] : 0); ++i)
      next |= (set >> top.arc_from[i] & 1) << top.arc_to[i];
    if (next == 0 && set != 0) dead_at = t;
    set = next;
  }
  a.work.reach[at] = set;
  a.work.dead_at[at] = dead_at;
}

// Runs beside the products, of which it needs nothing.
__global__ void __launch_bounds__(kScanStates) map_states_kernel(const __grid_constant__ ScanArgs a) {
  const std::int32_t T = a.scores.length[blockIdx.y], q = threadIdx.x;
  const Piece piece(T, a.pieces.steps, static_cast<std::int32_t>(blockIdx.x));
  if (piece.exists() && q < a.topology.Q)
    map_state(a, piece, T, q, (std::int64_t{blockIdx.y} * a.pieces.count + piece.number) * a.topology.Q + q);
  wait_for_prior_kernel();
}

// --- cross

// Between two pieces: the kParts partial sums of each entry, where entry i counts 2^exponent[i], and the vector that
// goes into the next piece, with one scale for all.
template <std::int32_t kWidth>
struct CrossingShared {
  double partial[kParts][kWidth], scaled[kWidth];
  std::int32_t exponent[kWidth];
};

// Thread i + width · part has products part, part + kParts, … of sum i. Products are loaded two pieces ahead. Leaves
// alpha forwards; backwards beta without the emissions, with the scale of product row i in entry i: normalize takes
// that off.
template <std::int32_t kTiles, bool kBack>
class Crossing {
 public:
  static constexpr std::int32_t kWidth = 8 * kTiles, kScalers = round_up(kWidth, 32);

  __device__ Crossing(const ScanArgs& a, std::int32_t T, CrossingShared<kWidth>& shared)
      : a_(a),
        shared_(shared),
        count_(Piece(T, a.pieces.steps, 0).of - 1),
        part_(static_cast<std::int32_t>(threadIdx.x) / kWidth),
        mine_(static_cast<std::int32_t>(threadIdx.x) % kWidth),
        at_(std::int64_t{blockIdx.x} * a.pieces.count) {}

  __device__ void operator()() {
    if (count_ <= 0) return;
    shared_.partial[part_][mine_] = part_ == 0 ? begin(mine_) : 0;
    if (part_ == 0) shared_.exponent[mine_] = kBack ? 0 : a_.work.exponents[at_ * kWidth + mine_];
    load<0>(0);
    load<1>(1);
    __syncthreads();
    for (std::int32_t n = 0; n < count_; n += 2) {
      step<0>(n);
      if (n + 1 < count_) step<1>(n + 1);
    }
    if (threadIdx.x < kScalers) scale(count_);
  }

 private:
  __device__ void lose(std::int64_t at) const { atomicMax(a_.work.boundaries.lost + at, std::int32_t{Lost::at_end}); }
  __device__ std::int32_t piece_of(std::int32_t n) const { return kBack ? count_ - n : n; }

  __device__ double begin(std::int32_t node) const {
    const DeviceTopology& top = a_.topology;
    if (node >= top.nodes) return 0;
    const std::int32_t label = top.node_label[node];
    if constexpr (kBack) return top.node_accepts[node] ? Downwards::weight(a_.scores.end[label]) : 0;
    if (top.node_state[node] != top.start) return 0;
    return a_.scores.start[label] * a_.emissions(blockIdx.x)[label];
  }

  // The thread's share of the n-th product, and the exponent of entry `mine_` of the vector behind it, which backwards
  // has the scales of this product's rows, forwards of the next one's.
  template <std::int32_t kTurn>
  __device__ void load(std::int32_t n) {
    if (n >= count_) return;
    const double* from = a_.work.products[kBack] + (at_ + piece_of(n)) * kWidth * kWidth + part_ * kWidth + mine_;
    const std::int32_t scales = kBack ? piece_of(n) : n + 1;
    if (part_ == 0) exponent_[kTurn] = a_.work.exponents[(at_ + scales) * kWidth + mine_];
#pragma unroll
    for (std::int32_t k = 0; k < kTiles; ++k) product_[kTurn][k] = from[k * kParts * kWidth];
  }

  // Adds up what n products have come to, leaves it, and gives it one scale. By the first kScalers threads.
  __device__ void scale(std::int32_t n) {
    constexpr std::int32_t numbers = kScalers / 32;
    const std::int32_t thread = threadIdx.x;
    double sum[numbers], own = 0;
    std::int32_t exponent[numbers], top = kZeroExponent, own_exponent = 0;
#pragma unroll
    for (std::int32_t k = 0; k < numbers; ++k) {
      const std::int32_t i = min(32 * k + thread % 32, kWidth - 1);
      sum[k] = 0;
#pragma unroll
      for (std::int32_t p = 0; p < kParts; ++p) sum[k] += shared_.partial[p][i];
      exponent[k] = shared_.exponent[i];
      if (counts(sum[k])) top = max(top, exponent_of(sum[k]) + exponent[k]);
      if (k == thread / 32) own = sum[k], own_exponent = exponent[k];
    }
    const std::int64_t boundary = at_ + (kBack ? count_ + 1 - n : n);
    if (n > 0 && thread < kWidth)
      (kBack ? a_.work.boundaries.beta : a_.work.boundaries.alpha)[boundary * kWidth + thread] = own;
    if (n > 0 && thread == 0) a_.work.boundaries.exponent[kBack][boundary] = total_exponent_;
    top = reduce_max(top);
    if (top == kZeroExponent) top = 0;
    if (thread < kWidth) {
      const double scaled = times_power(own, own_exponent - top);
      if (!kBack && vanishes(own, scaled)) lose(at_ + n);
      shared_.scaled[thread] = scaled;
    }
    total_exponent_ += top;
  }

  template <std::int32_t kTurn>
  __device__ void step(std::int32_t n) {
    if (threadIdx.x < kScalers) scale(n);
    __syncthreads();
    double sum[2] = {};
#pragma unroll
    for (std::int32_t k = 0; k < kTiles; ++k) {
      const double scaled = shared_.scaled[part_ + kParts * k], x = product_[kTurn][k] * scaled;
      if (!kBack && vanishes(min(product_[kTurn][k], scaled), x)) lose(at_ + n);
      sum[k % 2] += x;
    }
    shared_.partial[part_][mine_] = sum[0] + sum[1];
    if (part_ == 0) shared_.exponent[mine_] = exponent_[kTurn];
    load<kTurn>(n + 2);
    __syncthreads();
  }

  const ScanArgs& a_;
  CrossingShared<kWidth>& shared_;
  std::int32_t count_;  // boundaries
  std::int32_t part_, mine_;
  std::int64_t at_;
  double product_[2][kTiles];
  std::int32_t exponent_[2];
  std::int64_t total_exponent_ = 0;
};

// Gold, piece by piece, by one warp: a lane has two states of the automaton. Results of some pieces are loaded at a
// time.
__device__ void follow_pieces(const ScanArgs& a, std::int32_t T) {
  constexpr std::int32_t together = 8;
  const std::int64_t b = blockIdx.x, at = b * a.pieces.count * a.topology.Q;
  const std::int32_t Q = a.topology.Q, lane = threadIdx.x, of = Piece(T, a.pieces.steps, 0).of;
  std::uint64_t set = std::uint64_t{1} << a.topology.start;
  std::int32_t leaves = -1;
  for (std::int32_t first = 0; first < of && leaves < 0; first += together) {
    std::uint64_t reach[together][2];
    std::int32_t dead_at[together][2];
#pragma unroll
    for (std::int32_t k = 0; k < 2 * together; ++k) {
      const std::int32_t n = first + k / 2, q = lane + k % 2 * 32;
      const bool there = n < of && q < Q;
      reach[k / 2][k % 2] = there ? a.work.reach[at + std::int64_t{n} * Q + q] : 0;
      dead_at[k / 2][k % 2] = there ? a.work.dead_at[at + std::int64_t{n} * Q + q] : -1;
    }
#pragma unroll
    for (std::int32_t k = 0; k < together; ++k) {
      if (first + k >= of || leaves >= 0) continue;  // the same for all
      const bool in[2] = {(set >> lane & 1) != 0, (set >> (lane + 32) & 1) != 0};
      std::uint64_t next = (in[0] ? reach[k][0] : 0) | (in[1] ? reach[k][1] : 0);
      const std::int32_t last = max(in[0] ? dead_at[k][0] : -1, in[1] ? dead_at[k][1] : -1);
      for (int bit = 16; bit > 0; bit /= 2) next |= __shfl_xor_sync(kAllLanes, next, bit);
      set = next;
      if (set == 0) leaves = reduce_max(last);
    }
  }
  bool accepted = false;
  for (std::int32_t q = lane; q < Q; q += 32) accepted = accepted || ((set >> q & 1) && a.topology.accepting[q]);
  accepted = __any_sync(kAllLanes, accepted);
  if (lane == 0) a.leaves[b] = leaves >= 0 || accepted ? leaves : T;
}

template <std::int32_t kTiles>
__global__ void __launch_bounds__(8 * kTiles * kParts, 1) cross_kernel(const __grid_constant__ ScanArgs a) {
  __shared__ CrossingShared<8 * kTiles> shared;
  const std::int32_t T = a.scores.length[blockIdx.x];
  if (blockIdx.y == 2) {
    if (threadIdx.x < 32) follow_pieces(a, T);
  } else if (blockIdx.y == 1) {
    Crossing<kTiles, true>(a, T, shared)();
  } else {
    if (threadIdx.x == 0) a.trust[blockIdx.x] = Trust::trusted;
    if (threadIdx.x == 0) a.work.boundaries.grown[blockIdx.x] = 0;
    Crossing<kTiles, false>(a, T, shared)();
  }
}

// --- normalize

// A boundary gets the form that the pass wants: one scale, beta the emissions. One warp each.
template <std::int32_t kTiles>
__global__ void __launch_bounds__(32, 1) normalize_kernel(const __grid_constant__ ScanArgs a) {
  constexpr std::int32_t width = 8 * kTiles, numbers = width / 32 + (width % 32 != 0);
  const std::int64_t b = blockIdx.y;
  const Piece piece(a.scores.length[b], a.pieces.steps, static_cast<std::int32_t>(blockIdx.x) + 1);
  if (!piece.exists()) return;
  const std::int64_t at = b * a.pieces.count + piece.number;
  const bool back = blockIdx.z == 1;
  const std::int32_t lane = threadIdx.x;
  double* vector = (back ? a.work.boundaries.beta : a.work.boundaries.alpha) + at * width;
  const double* row = a.emissions(b) + std::int64_t{piece.first} * (a.topology.K + 1);
  double value[numbers];
  std::int32_t total_exponent = 0;
  const auto each = [&](const auto& act) {
#pragma unroll
    for (std::int32_t k = 0; k < numbers; ++k)
      if (lane + 32 * k < width) act(value[k], lane + 32 * k);
  };
  const auto scale = [&](const auto& exponent) {
    std::int32_t top = kZeroExponent;
    each([&](double x, std::int32_t i) { top = counts(x) ? max(top, exponent_of(x) + exponent(i)) : top; });
    top = reduce_max(top);
    if (top == kZeroExponent) return;
    each([&](double& x, std::int32_t i) {
      const double scaled = times_power(x, exponent(i) - top);
      if (!back && vanishes(x, scaled)) atomicMax(a.work.boundaries.lost + at - 1, std::int32_t{Lost::at_end});
      x = scaled;
    });
    total_exponent += top;
  };
  each([&](double& x, std::int32_t i) { x = vector[i]; });
  if (back) {
    scale([&](std::int32_t i) { return a.work.exponents[at * width + i]; });
    each([&](double& x, std::int32_t i) {
      x = i < a.topology.nodes ? x * Downwards::weight(row[a.topology.node_label[i]]) : 0;
    });
  }
  scale([](std::int32_t) { return 0; });
  each([&](double x, std::int32_t i) { vector[i] = x; });
  if (lane == 0) a.work.boundaries.exponent[back][at] += total_exponent;
}

// --- the call

}  // namespace

// As measured on an H200, without tensor cores.
ScanCosts expectation_costs(std::int32_t nodes, bool in_float) {
  const double tiles = tiles_of(nodes);
  return {.step = in_float ? 0.45 : 0.85,
          .multiply = 0.3 + 0.0105 * tiles * tiles * tiles,
          .cross = 0.3,
          .walk = 0.9,
          .start = 25 + 5 * tiles};
}

// The number of pieces with which the scan takes the least time, if that is clearly less than without.
Pieces choose_pieces(const ScanSize& size, const ScanCosts& costs) {
  const auto rounds = [&](std::int64_t blocks) { return static_cast<double>(ceil_div(blocks, size.processors)); };
  double best = 0.8 * static_cast<double>(size.T) * costs.step * rounds(2 * size.B);
  Pieces chosen;
  for (std::int64_t count = 2; size.B > 0 && count < size.T && count * size.B <= 2 * size.processors; ++count) {
    const Pieces pieces = pieces_of(size.T, (size.T - 2) / count + 1);
    const double steps = static_cast<double>(pieces.steps) * rounds(size.B * pieces.count);
    const double time = costs.start + steps * (costs.multiply + costs.walk) + costs.cross * pieces.count;
    if (time < best) best = time, chosen = pieces;
  }
  return chosen;
}

bool can_scan(const DeviceConstraint& constraint) {
  const DeviceConstraint::Impl& c = constraint.impl();
  return c.topology.nodes <= kScanNodes && c.topology.Q <= kScanStates &&
         product_bytes(c.topology.nodes) <= c.shared_bytes;
}

Pieces choose_pieces(const DeviceConstraint& constraint, const Batch& batch, const ScanCosts& costs) {
  if (!can_scan(constraint)) return {};
  const DeviceConstraint::Impl& c = constraint.impl();
  return choose_pieces({batch.size, batch.length, c.processors}, costs);
}

ScanMemory allocate_scan(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch, const Pieces& pieces,
                         bool gold) {
  ScanMemory work{};
  if (pieces.count == 1) return work;
  const auto all = batch.size * pieces.count;
  const std::int64_t width = 8 * tiles_of(c.topology.nodes);
  work.boundaries.width = static_cast<std::int32_t>(width);
  work.boundaries.alpha = arena.allocate<double>(all * width);
  work.boundaries.beta = arena.allocate<double>(all * width);
  for (auto*& e : work.boundaries.exponent) e = arena.allocate<std::int64_t>(all);
  work.boundaries.lost = arena.allocate<std::int32_t>(all);
  work.boundaries.grown = arena.allocate<std::int32_t>(batch.size);
  for (auto*& products : work.products) products = arena.allocate<double>(all * width * width);
  work.exponents = arena.allocate<std::int32_t>(all * width);
  if (!gold) return work;
  work.reach = arena.allocate<std::uint64_t>(all * std::int64_t{c.topology.Q});
  work.dead_at = arena.allocate<std::int32_t>(all * std::int64_t{c.topology.Q});
  return work;
}

void run_scan(const DeviceConstraint::Impl& c, const Batch& batch, const Pieces& pieces, const Prepared<double>& scores,
              const ScanMemory& work, std::int32_t* trust, std::int32_t* leaves, cudaStream_t stream) {
  const ScanArgs args{{c.topology, batch, pieces, scores}, work, trust, leaves};
  const std::int64_t B = batch.size, count = pieces.count;
  const bool gold = work.reach != nullptr;
  multiply_steps<ScaledSum>({args, work.products[0], work.products[1], work.exponents, work.boundaries.lost}, stream);
  if (gold)
    launch_kernel(map_states_kernel, {.x = count, .y = B, .threads = kScanStates, .programmatic = c.programmatic},
                  stream, args, "following gold");
  with_tiles(tiles_of(c.topology.nodes), [&](auto constant) {
    constexpr std::int32_t tiles = decltype(constant)::value;
    launch_kernel(cross_kernel<tiles>, {.x = B, .y = gold ? 3 : 2, .threads = 8 * tiles * kParts}, stream, args,
                  "crossing pieces");
    launch_kernel(normalize_kernel<tiles>, {.x = count - 1, .y = B, .z = 2, .threads = 32}, stream, args,
                  "scaling boundaries");
  });
}

}  // namespace regccrf::cuda
