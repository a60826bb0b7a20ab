// The one-state pass (see one_state.h), compiled for every instruction set by Highway and chosen at run time. Padding
// is zero in weights, alpha and beta, so a row's vectors are worked on as a whole.
#include <algorithm>
#include <cmath>
#include <limits>

#include "inference/numerics/arithmetic.h"
#include "inference/numerics/bounds.h"
#include "inference/cpu/kernels.h"
#include "inference/cpu/one_state.h"
#include "inference/numerics/limits.h"
#include "inference/numerics/sum.h"
#include "inference/numerics/wide.h"

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "inference/cpu/one_state.cc"
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
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif
using Limits = Bounds<double>;
constexpr double kPeak = 0x1p860;  // 2^Limits::peak
constexpr int kRescale = 4;        // steps from one adjustment of scales to the next
constexpr double kNone = -std::numeric_limits<double>::infinity();

// A row of `Row` · 8 numbers, whatever a vector's size.
template <int Row>
struct Pass {
  static constexpr int kVectors = Row * 8 / static_cast<int>(hn::MaxLanes(D()));
  static constexpr int kStride = Row * 8;
  static constexpr int kWays = kVectors == 1 ? 4 : kVectors <= 4 ? 2 : 1;  // sums that need not wait for each other

  const OneState& gains;
  const Sequence<double>& sequence;
  const Counts<double>& counts;
  double *weights, *alpha, *after;  // [T, stride]
  double first[kStride], last[kStride];
  D d;

  static HWY_INLINE int lanes() { return static_cast<int>(hn::Lanes(D())); }
  // How many of the v-th vector's lanes are labels.
  HWY_INLINE std::size_t labels(int v) const {
    return static_cast<std::size_t>(std::clamp(gains.K - v * lanes(), 0, lanes()));
  }
  // A row of K numbers may be followed by anything: nothing behind it is read or written.
#if HWY_TARGET <= HWY_AVX2
  HWY_INLINE V load(const double* row, int v, double padding) const {
    const auto mask = hn::FirstN(d, labels(v));
    return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, row + v * lanes()), hn::Set(d, padding));
  }
  HWY_INLINE void store(V x, double* row, int v) const {
    hn::BlendedStore(x, hn::FirstN(d, labels(v)), d, row + v * lanes());
  }
#else
  HWY_INLINE V load(const double* row, int v, double padding) const {
    HWY_ALIGN double buffer[8];
    std::fill_n(buffer, 8, padding);
    std::copy_n(row + v * lanes(), labels(v), buffer);
    return hn::Load(d, buffer);
  }
  HWY_INLINE void store(V x, double* row, int v) const {
    HWY_ALIGN double buffer[8];
    hn::Store(x, d, buffer);
    std::copy_n(buffer, labels(v), row + v * lanes());
  }
#endif

  // y[b] = Σ_a x[a] · m[a, b]
  HWY_INLINE void product(const double* HWY_RESTRICT x, const double* HWY_RESTRICT m, V* y) const {
    V sum[kWays][kVectors];
#pragma GCC unroll 4
    for (int w = 0; w < kWays; ++w) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[w][v] = hn::Zero(d);
    }
    for (int a = 0; a < gains.K; a += kWays) {
#pragma GCC unroll 4
      for (int w = 0; w < kWays; ++w) {
        const V xa = hn::Set(d, x[a + w]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v)
          sum[w][v] = hn::MulAdd(xa, hn::Load(d, m + (a + w) * kStride + v * lanes()), sum[w][v]);
      }
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      y[v] = sum[0][v];
      if constexpr (kWays >= 2) y[v] = hn::Add(y[v], sum[1][v]);
      if constexpr (kWays == 4) y[v] = hn::Add(y[v], hn::Add(sum[2][v], sum[3][v]));
    }
  }

  // weights[t] = exp(h[t] − largest), as alpha takes them; gives the sum of the largest.
  HWY_INLINE void weigh(Sum& peaks) {
    for (std::int64_t t = 0; t < sequence.T; ++t) {
      const double* h = sequence.at(t);
      V x[kVectors];
      V high = hn::Set(d, kNone);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        x[v] = load(h, v, kNone);
        high = hn::Max(high, x[v]);
      }
      double peak = hn::GetLane(hn::MaxOfLanes(d, high));
      if (peak == kNone) peak = 0;
      peaks.add(peak);
      const V shift = hn::Set(d, peak);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const V w = hn::Max(hn::Exp(d, hn::Sub(x[v], shift)), hn::Set(d, Limits::least));
        hn::Store(hn::IfThenElseZero(hn::Gt(x[v], hn::Set(d, kNone)), w), d, weights + t * kStride + v * lanes());
      }
    }
  }

  HWY_INLINE V lower(V weight) const { return hn::IfThenElseZero(hn::Gt(weight, hn::Set(d, Limits::least)), weight); }

  // alpha of every step; gives the exponent that was taken out. A step's scale goes into its weights, which from then
  // on are as beta takes them.
  HWY_INLINE std::int64_t forward() {
    std::int64_t exponents = -Limits::peak;
    for (int a = 0; a < kStride; ++a) {
      const double w = weights[a] * kPeak;
      alpha[a] = w > 0 && gains.start[a] > 0 ? std::max(w * gains.start[a], gains.floor) : 0;
      weights[a] = lower_weight(weights[a]);
    }
    for (std::int64_t t = 1; t < sequence.T; ++t) {
      const double* before = alpha + (t - 1) * kStride;
      double *w = weights + t * kStride, *now = alpha + t * kStride;
      V y[kVectors];
      product(before, gains.matrix, y);
      V factor = hn::Set(d, 1.0);
      if (t % kRescale == 0) {
        V high = hn::Load(d, before);
        for (int v = 1; v < kVectors; ++v) high = hn::Max(high, hn::Load(d, before + v * lanes()));
        const double largest = hn::GetLane(hn::MaxOfLanes(d, high));
        const int e = scale_for(largest);
        factor = hn::Set(d, power_of_two(1.0, e));
        exponents -= e;
      }
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const V weight = hn::Load(d, w + v * lanes()), scaled = hn::Mul(weight, factor);
        hn::Store(hn::IfThenElseZero(hn::Gt(weight, hn::Set(d, Limits::least)), scaled), d, w + v * lanes());
        const auto possible = hn::Gt(hn::Min(y[v], scaled), hn::Zero(d));
        hn::Store(hn::IfThenElseZero(possible, hn::Max(hn::Mul(y[v], scaled), hn::Set(d, gains.floor))), d,
                  now + v * lanes());
      }
    }
    return exponents;
  }

  // beta, and with it the labels' counts; `after` is h ⊗ beta. False if it cannot be trusted.
  HWY_INLINE bool backward(double inverse_z) {
    V beta[kVectors];
    double low = 1, high = 1;
    for (int v = 0; v < kVectors; ++v)
      beta[v] = hn::Mul(lower(hn::Load(d, gains.end + v * lanes())), hn::Set(d, inverse_z));
    for (std::int64_t t = sequence.T - 1;; --t) {
      V p[kVectors];
      V sums = hn::Zero(d);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const V a = hn::Load(d, alpha + t * kStride + v * lanes());
        const V b = hn::IfThenElseZero(hn::Gt(a, hn::Zero(d)), beta[v]);
        p[v] = hn::Mul(a, b);
        sums = hn::Add(sums, p[v]);
        hn::Store(hn::Mul(b, hn::Load(d, weights + t * kStride + v * lanes())), d, after + t * kStride + v * lanes());
      }
      const double sum = hn::GetLane(hn::SumOfLanes(d, sums));
      low = std::min(low, sum);
      high = std::max(high, sum);
      if (!(sum > 0)) return false;  // NaN too
      give(t, p, counts.weight / sum);
      if (t == 0) break;
      product(after + t * kStride, gains.transposed, beta);
    }
    // Z by beta alone, relative to alpha's.
    double z = 0;
    for (int a = 0; a < gains.K; ++a) z += kPeak * lower_weight(gains.start[a]) * after[a];
    return low >= 1 - kAgreement<double> && z >= 1 - kAgreement<double> && high < 2;
  }

  HWY_INLINE void give(std::int64_t t, const V* p, double scale) {
    const V s = hn::Set(d, scale);
    if (counts.emissions) {
      double* out = counts.emissions + sequence.row(t) * gains.K;
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) store(hn::Mul(p[v], s), out, v);
    }
    if (t > 0 && t + 1 < sequence.T) return;
    for (int v = 0; v < kVectors; ++v) {
      if (t == 0) hn::StoreU(hn::Mul(p[v], s), d, first + v * lanes());
      if (t + 1 == sequence.T) hn::StoreU(hn::Mul(p[v], s), d, last + v * lanes());
    }
  }

  // E[a, b] = Σ_t alpha[t, a] · after[t + 1, b], `Rows` rows a at a time. Scale and all, each is at most 2^peak /
  // floor.
  HWY_INLINE void bigrams(double* E) const {
    constexpr int kRows = kVectors * 8 + 4 <= kRegisters ? 8 : kVectors * 4 + 4 <= kRegisters ? 4 : 2;
    for (int a = 0; a < gains.K; a += kRows) {
      V sum[kRows][kVectors];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
      }
      for (std::int64_t t = 0; t + 1 < sequence.T; ++t) {
        const double *x = alpha + t * kStride + a, *y = after + (t + 1) * kStride;
        V yv[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) yv[v] = hn::Load(d, y + v * lanes());
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const V xa = hn::Set(d, x[r]);
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(xa, yv[v], sum[r][v]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          const V m = hn::Load(d, gains.matrix + (a + r) * kStride + v * lanes());
          hn::Store(hn::IfThenElseZero(hn::Gt(m, hn::Zero(d)), hn::Mul(sum[r][v], m)), d,
                    E + (a + r) * kStride + v * lanes());
        }
      }
    }
  }

  // Scaled so that they sum to what is known exactly, T - 1.
  HWY_INLINE void give_bigrams(const double* E) const {
    V sums = hn::Zero(d);
    for (int a = 0; a < gains.K; ++a) {
      for (int v = 0; v < kVectors; ++v) sums = hn::Add(sums, hn::Load(d, E + a * kStride + v * lanes()));
    }
    const double total = hn::GetLane(hn::SumOfLanes(d, sums));
    const V scale = hn::Set(d, counts.weight * static_cast<double>(sequence.T - 1) / total);
    for (int a = 0; a < gains.K; ++a) {
      for (int v = 0; v < kVectors; ++v) {
        double* out = counts.transitions + a * gains.K;
        store(hn::MulAdd(hn::Load(d, E + a * kStride + v * lanes()), scale, load(out, v, 0)), out, v);
      }
    }
  }
};

template <int Row>
HWY_INLINE FastResult run(const OneState& gains, const Sequence<double>& sequence, Arena& arena,
                          const Counts<double>& counts) {
  using P = Pass<Row>;
  const auto size = static_cast<std::size_t>(sequence.T) * P::kStride;
  P pass{gains, sequence, counts, arena.take<double>(size), arena.take<double>(size), arena.take<double>(size),
         {},    {},       {}};
  Sum log_z;
  pass.weigh(log_z);
  const std::int64_t exponents = pass.forward();
  double z = 0;
  for (int a = 0; a < gains.K; ++a) z += pass.alpha[(sequence.T - 1) * P::kStride + a] * gains.end[a];
  if (!(z > 0) || !pass.backward(1 / z)) return {false, kNone};
  log_z.add(gains.start_peak);
  log_z.add(gains.end_peak);
  log_z.add(gains.g_peak, static_cast<double>(sequence.T - 1));
  log_z.add(kLn2, static_cast<double>(exponents));
  log_z.add(kLn2Rest, static_cast<double>(exponents));
  log_z.add(std::log(z));
  for (int a = 0; counts.start && a < gains.K; ++a) counts.start[a] += pass.first[a];
  for (int a = 0; counts.end && a < gains.K; ++a) counts.end[a] += pass.last[a];
  if (counts.transitions && sequence.T > 1) {
    auto* E = arena.take<double>(static_cast<std::size_t>(P::kStride) * P::kStride);
    pass.bigrams(E);
    pass.give_bigrams(E);
  }
  return {true, log_z.value()};
}

FastResult OneStateCounts(const OneState& gains, const Sequence<double>& sequence, Arena& arena,
                          const Counts<double>& counts) {
  if (gains.stride == 8) return run<1>(gains, sequence, arena, counts);
  if (gains.stride == 16) return run<2>(gains, sequence, arena, counts);
  if (gains.stride == 24) return run<3>(gains, sequence, arena, counts);
  return run<4>(gains, sequence, arena, counts);
}

}  // namespace HWY_NAMESPACE
}  // namespace regccrf
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regccrf {

HWY_EXPORT(OneStateCounts);

bool is_one_state(const Topology& topology) { return accepts_everything(topology) && topology.K <= kOneStateLabels; }

OneState::OneState(const Scores<double>& scores)
    : K(scores.labels), stride((scores.labels + 7) / 8 * 8), g_peak(0), start_peak(0), end_peak(0), floor(0) {
  double lowest = 0;  // of the finite scores, relative to their largest
  // exp of scores relative to their largest, and that; ones where there are none.
  const auto weigh = [&lowest](std::span<const double> from, double& peak, double* to) {
    peak = -std::numeric_limits<double>::infinity();
    for (const double x : from) peak = std::max(peak, x);
    if (std::isinf(peak)) peak = 0;
    for (const double x : from) lowest = std::isinf(x) ? lowest : std::min(lowest, x - peak);
    std::transform(from.begin(), from.end(), to, [&](double x) { return upper_weight(x, std::exp(x - peak)); });
  };
  const auto size = static_cast<std::size_t>(stride), labels = static_cast<std::size_t>(K);
  matrix = memory.zeros<double>(size * size);
  transposed = memory.zeros<double>(size * size);
  start = memory.zeros<double>(size);
  end = memory.zeros<double>(size);
  std::fill_n(start, labels, 1.0);
  std::fill_n(end, labels, 1.0);
  if (!scores.end.empty()) weigh(scores.end, end_peak, end);
  std::vector<double> g(labels * labels, 1.0);
  if (!scores.transitions.empty()) weigh(scores.transitions, g_peak, g.data());
  floor = floor_for<double>(lowest);
  if (!scores.start.empty()) weigh(scores.start, start_peak, start);
  for (std::size_t a = 0; a < labels; ++a) {
    for (std::size_t b = 0; b < labels; ++b) {
      matrix[a * size + b] = g[a * labels + b];
      transposed[b * size + a] = lower_weight(g[a * labels + b]);
    }
  }
}

FastResult one_state_counts(const OneState& gains, const Sequence<double>& sequence, Arena& arena,
                            const Counts<double>& counts, std::size_t keep_bytes) {
  const std::size_t bytes =
      3 * sizeof(double) * static_cast<std::size_t>(sequence.T) * static_cast<std::size_t>(gains.stride);
  if (bytes > keep_bytes) return {false, -std::numeric_limits<double>::infinity()};
  const FlushToZero flush;
  return HWY_DYNAMIC_DISPATCH(OneStateCounts)(gains, sequence, arena, counts);
}

}  // namespace regccrf
#endif
