// Twelve independent chains of vector multiply–adds, with the widest vectors that the machine has.
#include "bench/inference/peak.h"

#include <chrono>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/inference/peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace regccrf::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Gives the number of products done; `sink` keeps them from being optimised away.
double chains(int rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f), addend = hn::Set(d, 0.001f);
  auto a0 = hn::Set(d, 0.0f), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0, a8 = a0, a9 = a0, a10 = a0, a11 = a0;
  for (int i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, factor, addend);
    a1 = hn::MulAdd(a1, factor, addend);
    a2 = hn::MulAdd(a2, factor, addend);
    a3 = hn::MulAdd(a3, factor, addend);
    a4 = hn::MulAdd(a4, factor, addend);
    a5 = hn::MulAdd(a5, factor, addend);
    a6 = hn::MulAdd(a6, factor, addend);
    a7 = hn::MulAdd(a7, factor, addend);
    a8 = hn::MulAdd(a8, factor, addend);
    a9 = hn::MulAdd(a9, factor, addend);
    a10 = hn::MulAdd(a10, factor, addend);
    a11 = hn::MulAdd(a11, factor, addend);
  }
  const auto s0 = hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), s1 = hn::Add(hn::Add(a4, a5), hn::Add(a6, a7));
  const auto s2 = hn::Add(hn::Add(a8, a9), hn::Add(a10, a11));
  *sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, hn::Add(s1, s2))));
  return 12.0 * rounds * static_cast<double>(hn::Lanes(d));
}

}  // namespace regccrf::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regccrf::bench {

HWY_EXPORT(chains);

double peak_products_per_second() {
  double best = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    volatile float kept = 0;
    float sink = 0;
    const auto start = std::chrono::steady_clock::now();
    const double products = HWY_DYNAMIC_DISPATCH(chains)(1'000'000, &sink);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    kept = sink;
    (void)kept;
    if (products / seconds > best) best = products / seconds;
  }
  return best;
}

}  // namespace regccrf::bench
#endif
