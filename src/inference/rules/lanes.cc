// The sums (see lanes.h), compiled once for every instruction set by Highway and chosen at run time.
#include "inference/rules/lanes.h"

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "inference/rules/lanes.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace regccrf {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<double, kRowUnit>;

// Four vectors stay in registers while all rows are added up. weight(k), row(k): of the k-th.
template <class Weight, class Row>
HWY_INLINE void Sum(std::size_t count, std::size_t width, double* to, const Weight& weight, const Row& row) {
  const Lanes d;
  const std::size_t N = hn::Lanes(d);
  std::size_t w = 0;
  for (; w + 4 * N <= width; w += 4 * N) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (std::size_t k = 0; k < count; ++k) {
      const auto p = hn::Set(d, weight(k));
      const double* from = row(k) + w;
      s0 = hn::MulAdd(p, hn::LoadU(d, from), s0);
      s1 = hn::MulAdd(p, hn::LoadU(d, from + N), s1);
      s2 = hn::MulAdd(p, hn::LoadU(d, from + 2 * N), s2);
      s3 = hn::MulAdd(p, hn::LoadU(d, from + 3 * N), s3);
    }
    hn::StoreU(s0, d, to + w);
    hn::StoreU(s1, d, to + w + N);
    hn::StoreU(s2, d, to + w + 2 * N);
    hn::StoreU(s3, d, to + w + 3 * N);
  }
  for (; w < width; w += N) {
    auto even = hn::Zero(d), odd = even;
    std::size_t k = 0;
    for (; k + 2 <= count; k += 2) {
      even = hn::MulAdd(hn::Set(d, weight(k)), hn::LoadU(d, row(k) + w), even);
      odd = hn::MulAdd(hn::Set(d, weight(k + 1)), hn::LoadU(d, row(k + 1) + w), odd);
    }
    if (k < count) even = hn::MulAdd(hn::Set(d, weight(k)), hn::LoadU(d, row(k) + w), even);
    hn::StoreU(hn::Add(even, odd), d, to + w);
  }
}

void SumRows(const double* weight, const std::int32_t* index, std::size_t count, const double* rows, std::size_t width,
             double* to) {
  Sum(
      count, width, to, [&](std::size_t k) { return weight[k]; },
      [&](std::size_t k) { return rows + static_cast<std::size_t>(index[k]) * width; });
}

void SumAllRows(const double* weight, std::size_t stride, std::size_t count, const double* rows, std::size_t width,
                double* to) {
  Sum(
      count, width, to, [&](std::size_t k) { return weight[k * stride]; },
      [&](std::size_t k) { return rows + k * width; });
}

void AddToRows(const double* weight, const std::int32_t* index, std::size_t count, const double* from,
               std::size_t width, double* rows) {
  const Lanes d;
  for (std::size_t w = 0; w < width; w += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, from + w);
    for (std::size_t k = 0; k < count; ++k) {
      double* to = rows + static_cast<std::size_t>(index[k]) * width + w;
      hn::StoreU(hn::MulAdd(hn::Set(d, weight[k]), x, hn::LoadU(d, to)), d, to);
    }
  }
}

void DotRows(const std::int32_t* index, std::size_t count, const double* rows, std::size_t width, const double* with,
             double* to) {
  const Lanes d;
  for (std::size_t k = 0; k < count; ++k) {
    const double* row = rows + static_cast<std::size_t>(index[k]) * width;
    auto sum = hn::Zero(d);
    for (std::size_t w = 0; w < width; w += hn::Lanes(d))
      sum = hn::MulAdd(hn::LoadU(d, row + w), hn::LoadU(d, with + w), sum);
    to[k] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regccrf
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regccrf {

HWY_EXPORT(SumRows);
void sum_rows(const double* weight, const std::int32_t* index, std::size_t count, const double* rows, std::size_t width,
              double* to) {
  HWY_DYNAMIC_DISPATCH(SumRows)(weight, index, count, rows, width, to);
}
HWY_EXPORT(SumAllRows);
void sum_all_rows(const double* weight, std::size_t stride, std::size_t count, const double* rows, std::size_t width,
                  double* to) {
  HWY_DYNAMIC_DISPATCH(SumAllRows)(weight, stride, count, rows, width, to);
}
HWY_EXPORT(AddToRows);
void add_to_rows(const double* weight, const std::int32_t* index, std::size_t count, const double* from,
                 std::size_t width, double* rows) {
  HWY_DYNAMIC_DISPATCH(AddToRows)(weight, index, count, from, width, rows);
}
HWY_EXPORT(DotRows);
void dot_rows(const std::int32_t* index, std::size_t count, const double* rows, std::size_t width, const double* with,
              double* to) {
  HWY_DYNAMIC_DISPATCH(DotRows)(index, count, rows, width, with, to);
}

}  // namespace regccrf
#endif  // HWY_ONCE
