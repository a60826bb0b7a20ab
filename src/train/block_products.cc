// The two sparse products of a block (see blocks.h), compiled for every instruction set by Highway and chosen at run
// time.
//
// Rows lie without gaps, so a row's last vector reaches into the next row: forward it adds zeros there, backward it
// sums what nobody looks at.
#include <algorithm>
#include <vector>

#include "train/blocks.h"

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "train/block_products.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace regccrf {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<double, 8>;
using V = hn::Vec<D>;
constexpr int kStrip = 4;  // vectors of a row that are in registers at a time

// One attribute at its positions.
struct Run {
  const std::int32_t* row;
  const float* value;  // null: 1
  std::int64_t count;
};

HWY_INLINE Run run_of(const Items& items, std::size_t r) {
  const std::int64_t begin = items.runs[r].begin;
  return {items.row.data() + begin, items.run_value.empty() ? nullptr : items.run_value.data() + begin,
          items.runs[r + 1].begin - begin};
}

template <int Vectors>
HWY_INLINE void add_strip(const Run& run, int K, const double* weights, double* h) {
  const D d;
  const int N = static_cast<int>(hn::Lanes(d));
  V w[Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) w[v] = hn::LoadU(d, weights + v * N);
  for (std::int64_t k = 0; k < run.count; ++k) {
    double* HWY_RESTRICT to = h + static_cast<std::int64_t>(run.row[k]) * K;
    const V value = hn::Set(d, run.value ? static_cast<double>(run.value[k]) : 1.0);
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) hn::StoreU(hn::MulAdd(w[v], value, hn::LoadU(d, to + v * N)), d, to + v * N);
  }
}

template <int Vectors>
HWY_INLINE void sum_strip(const Run& run, int K, const double* dh, double* sums) {
  const D d;
  const int N = static_cast<int>(hn::Lanes(d));
  V sum[Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) sum[v] = hn::Zero(d);
  for (std::int64_t k = 0; k < run.count; ++k) {
    const double* HWY_RESTRICT from = dh + static_cast<std::int64_t>(run.row[k]) * K;
    const V value = hn::Set(d, run.value ? static_cast<double>(run.value[k]) : 1.0);
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sum[v] = hn::MulAdd(value, hn::LoadU(d, from + v * N), sum[v]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) hn::StoreU(sum[v], d, sums + v * N);
}

// body(strip of as many vectors, offset) over a row of K numbers.
template <class Body>
HWY_INLINE void over_row(int K, const Body& body) {
  const int N = static_cast<int>(hn::Lanes(D()));
  int a = 0;
  for (; a + kStrip * N <= K; a += kStrip * N) body(std::integral_constant<int, kStrip>(), a);
  const int left = (K - a + N - 1) / N;
  if (left == 4) body(std::integral_constant<int, 4>(), a);
  if (left == 3) body(std::integral_constant<int, 3>(), a);
  if (left == 2) body(std::integral_constant<int, 2>(), a);
  if (left == 1) body(std::integral_constant<int, 1>(), a);
}

void AddEmissions(const Items& items, const Columns& columns, const double* w, double* h) {
  const int K = columns.K;
  std::vector<double> dense(static_cast<std::size_t>(K) + kSlack, 0.0);
  for (std::size_t r = 0; r + 1 < items.runs.size(); ++r) {
    const Run run = run_of(items, r);
    const std::int32_t first = items.runs[r].weight, last = first + items.runs[r].labels;
    for (std::int32_t f = first; f < last; ++f) dense[columns.label[f]] = w[f];
    over_row(K, [&](auto vectors, int a) HWY_ATTR { add_strip<vectors()>(run, K, dense.data() + a, h + a); });
    for (std::int32_t f = first; f < last; ++f) dense[columns.label[f]] = 0;
  }
  const std::size_t pairs = items.weight.size();
  const std::int32_t *f = items.weight.data(), *cell = items.cell.data();
  if (items.value.empty()) {
    for (std::size_t k = 0; k < pairs; ++k) h[cell[k]] += w[f[k]];
  } else {
    for (std::size_t k = 0; k < pairs; ++k) h[cell[k]] += static_cast<double>(items.value[k]) * w[f[k]];
  }
}

void AddGradient(const Items& items, const Columns& columns, std::int64_t first, std::int64_t last, const double* dh,
                 double* gradient) {
  const int K = columns.K;
  std::vector<double> sums(static_cast<std::size_t>(K) + kSlack);
  const auto at = [&](std::int64_t weight) {
    const auto before = [](const Items::Run& x, std::int64_t y) { return x.weight < y; };
    return static_cast<std::size_t>(std::lower_bound(items.runs.begin(), items.runs.end() - 1, weight, before) -
                                    items.runs.begin());
  };
  for (std::size_t r = at(first), end = at(last); r < end; ++r) {
    const Run run = run_of(items, r);
    over_row(K, [&](auto vectors, int a) HWY_ATTR { sum_strip<vectors()>(run, K, dh + a, sums.data() + a); });
    const std::int32_t begin = items.runs[r].weight;
    for (std::int32_t f = begin; f < begin + items.runs[r].labels; ++f) gradient[f] += sums[columns.label[f]];
  }
  const auto pair = [&](std::int64_t weight) {
    return static_cast<std::size_t>(std::lower_bound(items.weight.begin(), items.weight.end(), weight) -
                                    items.weight.begin());
  };
  const std::int32_t *f = items.weight.data(), *cell = items.cell.data();
  const std::size_t end = pair(last);
  if (items.value.empty()) {
    for (std::size_t k = pair(first); k < end; ++k) gradient[f[k]] += dh[cell[k]];
  } else {
    for (std::size_t k = pair(first); k < end; ++k) gradient[f[k]] += static_cast<double>(items.value[k]) * dh[cell[k]];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regccrf
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regccrf {

HWY_EXPORT(AddEmissions);
HWY_EXPORT(AddGradient);

void add_emissions(const Items& items, const Columns& columns, const double* w, double* h) {
  HWY_DYNAMIC_DISPATCH(AddEmissions)(items, columns, w, h);
}

void add_gradient(const Items& items, const Columns& columns, std::int64_t first, std::int64_t last, const double* dh,
                  double* gradient) {
  HWY_DYNAMIC_DISPATCH(AddGradient)(items, columns, first, last, dh, gradient);
}

}  // namespace regccrf
#endif
