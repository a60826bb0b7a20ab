// The small pass (see small_pass.h): a plain part that takes scores from labels to nodes and counts from nodes to
// labels, and between them a pass over rows of nodes, compiled for every instruction set by Highway and chosen at run
// time. Padding is zero in weights, alpha and beta, so a row's vectors are worked on as a whole.
#include "inference/cpu/small_pass.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "inference/numerics/arithmetic.h"
#include "inference/numerics/bounds.h"
#include "inference/numerics/limits.h"
#include "inference/numerics/sum.h"
#include "inference/numerics/wide.h"

#ifndef REGCCRF_SMALL_PASS
#define REGCCRF_SMALL_PASS
namespace regccrf {

// The labels of the nodes, which are in their order: those of the d-th label that has any are begin[d] … begin[d+1]-1.
struct NodeLabels {
  int nodes, K, used;
  bool all;                       // node c has label c, and there is no other label
  std::int32_t label[kFewNodes];  // [used]
  std::int32_t begin[kFewNodes + 1];
  std::int32_t number[kFewNodes];  // [nodes] the d of a node's label

  explicit NodeLabels(const Topology& topology) : nodes(topology.nodes), K(topology.K), used(0) {
    const std::int32_t* labels = plan_of(topology).out_labels.data();
    for (int c = 0; c < nodes; ++c) {
      if (c == 0 || labels[c] != labels[c - 1]) {
        label[used] = labels[c];
        begin[used++] = c;
      }
      number[c] = used - 1;
    }
    begin[used] = nodes;
    all = used == nodes && nodes == K;
  }

  double sum(const double* by_node, int d) const {
    double sum = by_node[begin[d]];
    for (int c = begin[d] + 1; c < begin[d + 1]; ++c) sum += by_node[c];
    return sum;
  }
  // by_label[label] (+)= weight · Σ by_node
  template <class Real>
  void add(const double* by_node, double weight, Real* by_label) const {
    if (all) {
      for (int c = 0; c < nodes; ++c) by_label[c] += static_cast<Real>(weight * by_node[c]);
    } else {
      for (int d = 0; d < used; ++d) by_label[label[d]] += static_cast<Real>(weight * sum(by_node, d));
    }
  }
  template <class Real>
  void put(const double* by_node, double weight, Real* by_label) const {
    if (all) {
      for (int c = 0; c < nodes; ++c) by_label[c] = static_cast<Real>(weight * by_node[c]);
    } else {
      if (used < K) std::fill_n(by_label, K, Real{0});
      for (int d = 0; d < used; ++d) by_label[label[d]] = static_cast<Real>(weight * sum(by_node, d));
    }
  }
};

// One sequence, node by node. Rows have `stride` numbers: the nodes, padded to a multiple of 8.
struct SmallRows {
  const Gains<double>& gains;
  const NodeLabels& labels;
  int nodes, stride;
  std::int64_t T;
  double* weights;  // [T, stride] scores by label, −inf behind them; then weights; then marginals, if `marginals`
  double *alpha, *after;  // [T, stride]
  double* bigrams;        // [stride, stride], or null
  bool marginals;
};

}  // namespace regccrf
#endif

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "inference/cpu/small_pass.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace regccrf {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<double, 8>;
using V = hn::Vec<D>;

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr int kRegisters = 32, kMostVectors = 8;
#else
constexpr int kRegisters = 16, kMostVectors = 6;
#endif
using Limits = Bounds<double>;
constexpr double kPeak = 0x1p860;  // 2^Limits::peak
constexpr int kRescale = 4;        // steps from one adjustment of scales to the next
constexpr double kNone = -std::numeric_limits<double>::infinity();

// Rows of `Row` · 8 numbers, whatever a vector's size.
template <int Row>
struct Pass {
  static constexpr int kStride = Row * 8;
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));  // no target here has vectors of unknown size
  static constexpr int kVectors = kStride / kLanes;

  const SmallRows& rows;
  const Gains<double>& gains;
  D d;

  double* weights(std::int64_t t) const { return rows.weights + t * kStride; }
  double* alpha(std::int64_t t) const { return rows.alpha + t * kStride; }
  double* after(std::int64_t t) const { return rows.after + t * kStride; }

  // y[b] = Σ_a x[a] · m[a, b], from the First-th vector of y on: as many at a time as registers hold.
  template <int First = 0>
  HWY_INLINE void product(const double* HWY_RESTRICT x, const double* HWY_RESTRICT m, V* y) const {
    constexpr int kBlock = std::min(kVectors - First, kMostVectors);
    constexpr int kWays = kBlock == 1 ? 4 : kBlock <= 4 ? 2 : 1;  // sums that need not wait for each other
    V sum[kWays][kBlock];
#pragma GCC unroll 4
    for (int w = 0; w < kWays; ++w) {
#pragma GCC unroll 16
      for (int v = 0; v < kBlock; ++v) sum[w][v] = hn::Zero(d);
    }
    for (int a = 0; a < rows.nodes; a += kWays) {
#pragma GCC unroll 4
      for (int w = 0; w < kWays; ++w) {
        const V xa = hn::Set(d, x[a + w]);
#pragma GCC unroll 16
        for (int v = 0; v < kBlock; ++v)
          sum[w][v] = hn::MulAdd(xa, hn::Load(d, m + (a + w) * kStride + (First + v) * kLanes), sum[w][v]);
      }
    }
#pragma GCC unroll 16
    for (int v = 0; v < kBlock; ++v) {
      V all = sum[0][v];
      if constexpr (kWays >= 2) all = hn::Add(all, sum[1][v]);
      if constexpr (kWays == 4) all = hn::Add(all, hn::Add(sum[2][v], sum[3][v]));
      y[First + v] = all;
    }
    if constexpr (First + kBlock < kVectors) product<First + kBlock>(x, m, y);
  }

  // weights = exp(scores − largest), as alpha takes them; gives the largest.
  HWY_INLINE double weigh(double* row) const {
    const int vectors = (rows.labels.used + kLanes - 1) / kLanes;
    V high = hn::Set(d, kNone);
    for (int v = 0; v < vectors; ++v) high = hn::Max(high, hn::Load(d, row + v * kLanes));
    double peak = hn::GetLane(hn::MaxOfLanes(d, high));
    if (peak == kNone) peak = 0;
    const V shift = hn::Set(d, peak);
    for (int v = 0; v < vectors; ++v) {
      const V x = hn::Load(d, row + v * kLanes);
      const V w = hn::Max(hn::Exp(d, hn::Sub(x, shift)), hn::Set(d, Limits::least));
      hn::Store(hn::IfThenElseZero(hn::Gt(x, hn::Set(d, kNone)), w), d, row + v * kLanes);
    }
    if (rows.labels.used < rows.nodes) spread(row);
    return peak;
  }

  // From labels to nodes, in place: a node never stands before its label.
  HWY_INLINE void spread(double* row) const {
    for (int c = rows.nodes - 1; c >= 0; --c) row[c] = row[rows.labels.number[c]];
    for (int c = rows.nodes; c < kStride; ++c) row[c] = 0;
  }

  HWY_INLINE V lower(V weight) const { return hn::IfThenElseZero(hn::Gt(weight, hn::Set(d, Limits::least)), weight); }

  HWY_INLINE double largest(const double* row) const {
    V high = hn::Load(d, row);
    for (int v = 1; v < kVectors; ++v) high = hn::Max(high, hn::Load(d, row + v * kLanes));
    return hn::GetLane(hn::MaxOfLanes(d, high));
  }

  // alpha of every step; gives the exponent that was taken out. A step's scale goes into its weights, which from then
  // on are as beta takes them.
  HWY_INLINE std::int64_t forward(Sum& peaks) const {
    std::int64_t exponents = -Limits::peak;
    for (std::int64_t t = 0; t < rows.T; ++t) peaks.add(weigh(weights(t)));
    for (int c = 0; c < kStride; ++c) {
      double& w = weights(0)[c];
      alpha(0)[c] = w > 0 && gains.start[c] > 0 ? std::max(w * kPeak * gains.start[c], gains.floor) : 0;
      w = lower_weight(w);
    }
    for (std::int64_t t = 1; t < rows.T; ++t) {
      V y[kVectors];
      product(alpha(t - 1), gains.matrix, y);
      V factor = hn::Set(d, 1.0);
      if (t % kRescale == 0) {
        const int e = scale_for(largest(alpha(t - 1)));
        factor = hn::Set(d, power_of_two(1.0, e));
        exponents -= e;
      }
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        double* w = weights(t) + v * kLanes;
        const V weight = hn::Load(d, w), scaled = hn::Mul(weight, factor);
        hn::Store(hn::IfThenElseZero(hn::Gt(weight, hn::Set(d, Limits::least)), scaled), d, w);
        const auto possible = hn::Gt(hn::Min(y[v], scaled), hn::Zero(d));
        hn::Store(hn::IfThenElseZero(possible, hn::Max(hn::Mul(y[v], scaled), hn::Set(d, gains.floor))), d,
                  alpha(t) + v * kLanes);
      }
    }
    return exponents;
  }

  // beta, and with it the marginals; `after` is h ⊗ beta. False if it cannot be trusted.
  HWY_INLINE bool backward(double inverse_z) const {
    V beta[kVectors];
    double low = 1, high = 1;
    for (int v = 0; v < kVectors; ++v)
      beta[v] = hn::Mul(lower(hn::Load(d, gains.last + v * kLanes)), hn::Set(d, inverse_z));
    for (std::int64_t t = rows.T - 1;; --t) {
      V p[kVectors];
      V sums = hn::Zero(d);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const V a = hn::Load(d, alpha(t) + v * kLanes);
        const V b = hn::IfThenElseZero(hn::Gt(a, hn::Zero(d)), beta[v]);
        p[v] = hn::Mul(a, b);
        sums = hn::Add(sums, p[v]);
        hn::Store(hn::Mul(b, hn::Load(d, weights(t) + v * kLanes)), d, after(t) + v * kLanes);
      }
      const double sum = hn::GetLane(hn::SumOfLanes(d, sums));
      low = std::min(low, sum);
      high = std::max(high, sum);
      if (!(sum > 0)) return false;  // NaN too
      if (rows.marginals) {
        const V scale = hn::Set(d, 1 / sum);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) hn::Store(hn::Mul(p[v], scale), d, weights(t) + v * kLanes);
      }
      if (t == 0) break;
      product(after(t), gains.transposed, beta);
    }
    // Z by beta alone, relative to alpha's.
    double z = 0;
    for (int c = 0; c < rows.nodes; ++c) z += kPeak * lower_weight(gains.start[c]) * after(0)[c];
    return low >= 1 - kAgreement<double> && z >= 1 - kAgreement<double> && high < 2;
  }

  // E[a, b] = Σ_t alpha[t, a] · after[t + 1, b] · gain, some rows a at a time, from the First-th vector of b on.
  // Without the gain, scale and all, each is at most 2^peak / floor.
  template <int First = 0>
  HWY_INLINE void bigrams() const {
    constexpr int kBlock = std::min(kVectors - First, kMostVectors);
    constexpr int kRows = kBlock * 8 + 4 <= kRegisters ? 8 : kBlock * 4 + 4 <= kRegisters ? 4 : 2;
    for (int a = 0; a < rows.nodes; a += kRows) {
      V sum[kRows][kBlock];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < kBlock; ++v) sum[r][v] = hn::Zero(d);
      }
      for (std::int64_t t = 0; t + 1 < rows.T; ++t) {
        const double *x = alpha(t) + a, *y = after(t + 1) + First * kLanes;
        V yv[kBlock];
#pragma GCC unroll 16
        for (int v = 0; v < kBlock; ++v) yv[v] = hn::Load(d, y + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const V xa = hn::Set(d, x[r]);
#pragma GCC unroll 16
          for (int v = 0; v < kBlock; ++v) sum[r][v] = hn::MulAdd(xa, yv[v], sum[r][v]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < kBlock; ++v) {
          const int at = (a + r) * kStride + (First + v) * kLanes;
          const V m = hn::Load(d, gains.matrix + at);
          hn::Store(hn::IfThenElseZero(hn::Gt(m, hn::Zero(d)), hn::Mul(sum[r][v], m)), d, rows.bigrams + at);
        }
      }
    }
    if constexpr (First + kBlock < kVectors) bigrams<First + kBlock>();
  }

  // Scaled so that they sum to what is known exactly, T - 1.
  HWY_INLINE void scale_bigrams() const {
    double *E = rows.bigrams, *end = E + rows.nodes * kStride;
    V sums[kVectors];
    for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
    for (const double* row = E; row != end; row += kStride) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[v] = hn::Add(sums[v], hn::Load(d, row + v * kLanes));
    }
    for (int v = 1; v < kVectors; ++v) sums[0] = hn::Add(sums[0], sums[v]);
    const double total = hn::GetLane(hn::SumOfLanes(d, sums[0]));
    const V scale = hn::Set(d, static_cast<double>(rows.T - 1) / total);
    for (double* e = E; e != end; e += kLanes) hn::Store(hn::Mul(hn::Load(d, e), scale), d, e);
  }
};

template <int Row>
FastResult run(const SmallRows& rows) {
  const Gains<double>& gains = rows.gains;
  const Pass<Row> pass{rows, gains, {}};
  Sum log_z;
  const std::int64_t exponents = pass.forward(log_z);
  double z = 0;
  for (int c = 0; c < rows.nodes; ++c) z += pass.alpha(rows.T - 1)[c] * gains.last[c];
  if (!(z > 0) || !pass.backward(1 / z)) return {false, kNone};
  if (rows.bigrams) {
    pass.bigrams();
    pass.scale_bigrams();
  }
  log_z.add(gains.start_peak);
  log_z.add(gains.end_peak);
  log_z.add(gains.g_peak, static_cast<double>(rows.T - 1));
  log_z.add(kLn2, static_cast<double>(exponents));
  log_z.add(kLn2Rest, static_cast<double>(exponents));
  log_z.add(std::log(z));
  return {true, log_z.value()};
}

FastResult RunSmall(const SmallRows& rows) {
  static_assert(kFewNodes == 64);
  if (rows.stride == 8) return run<1>(rows);
  if (rows.stride == 16) return run<2>(rows);
  if (rows.stride == 24) return run<3>(rows);
  if (rows.stride == 32) return run<4>(rows);
  if (rows.stride == 40) return run<5>(rows);
  if (rows.stride == 48) return run<6>(rows);
  if (rows.stride == 56) return run<7>(rows);
  return run<8>(rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace regccrf
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regccrf {

HWY_EXPORT(RunSmall);

namespace {

template <class Real>
void give(const SmallRows& rows, const NodeLabels& labels, const Sequence<Real>& sequence, const Counts<Real>& counts) {
  const auto marginals = [&](std::int64_t t) { return rows.weights + t * rows.stride; };
  for (std::int64_t t = 0; counts.emissions && t < rows.T; ++t) {
    labels.put(marginals(t), counts.weight, counts.emissions + sequence.row(t) * labels.K);
  }
  if (counts.start) labels.add(marginals(0), counts.weight, counts.start);
  if (counts.end) labels.add(marginals(rows.T - 1), counts.weight, counts.end);
  for (int c = 0; rows.bigrams && c < rows.nodes; ++c)
    labels.add(rows.bigrams + c * rows.stride, counts.weight,
               counts.transitions + labels.label[labels.number[c]] * labels.K);
}

}  // namespace

template <class Real>
FastResult small_counts(const Gains<double>& gains, const Sequence<Real>& sequence, Arena& arena,
                        const Counts<Real>& counts, std::size_t keep_bytes) {
  const NodeLabels labels(gains.topology);
  const int stride = (labels.nodes + kLaneUnit - 1) / kLaneUnit * kLaneUnit;
  const std::size_t size = static_cast<std::size_t>(sequence.T) * static_cast<std::size_t>(stride);
  if (3 * sizeof(double) * size > keep_bytes) return {false, -std::numeric_limits<double>::infinity()};
  const bool bigrams = counts.transitions && sequence.T > 1;
  const SmallRows rows{gains,
                       labels,
                       labels.nodes,
                       stride,
                       sequence.T,
                       arena.take<double>(size),
                       arena.take<double>(size),
                       arena.take<double>(size),
                       bigrams ? arena.take<double>(static_cast<std::size_t>(stride) * stride) : nullptr,
                       counts.wanted()};
  for (std::int64_t t = 0; t < rows.T; ++t) {
    double* row = rows.weights + t * stride;
    const Real* h = sequence.at(t);
    if (labels.all) {
      std::copy_n(h, labels.K, row);
    } else {
      for (int d = 0; d < labels.used; ++d) row[d] = static_cast<double>(h[labels.label[d]]);
    }
    std::fill(row + labels.used, row + stride, -std::numeric_limits<double>::infinity());
  }
  const FlushToZero flush;
  const FastResult result = HWY_DYNAMIC_DISPATCH(RunSmall)(rows);
  if (result.trusted) give(rows, labels, sequence, counts);
  return result;
}

template FastResult small_counts(const Gains<double>&, const Sequence<float>&, Arena&, const Counts<float>&,
                                 std::size_t);
template FastResult small_counts(const Gains<double>&, const Sequence<double>&, Arena&, const Counts<double>&,
                                 std::size_t);

}  // namespace regccrf
#endif
