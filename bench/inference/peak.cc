// Independent chains of vector multiply-adds in registers (see peak.h).
#include "peak.h"

#include <chrono>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "peak.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

double Chains(int rounds, float* out) {
  const hn::ScalableTag<float> d;
  constexpr int chains = 12;
  const auto x = hn::Set(d, out[0]), y = hn::Set(d, out[1]);
  auto a0 = x, a1 = x, a2 = x, a3 = x, a4 = x, a5 = x, a6 = x, a7 = x, a8 = x, a9 = x, a10 = x, a11 = x;
  for (int i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, x, y), a1 = hn::MulAdd(a1, x, y), a2 = hn::MulAdd(a2, x, y), a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y), a5 = hn::MulAdd(a5, x, y), a6 = hn::MulAdd(a6, x, y), a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y), a9 = hn::MulAdd(a9, x, y), a10 = hn::MulAdd(a10, x, y), a11 = hn::MulAdd(a11, x, y);
  }
  const auto s0 = hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), s1 = hn::Add(hn::Add(a4, a5), hn::Add(a6, a7));
  const auto s2 = hn::Add(hn::Add(a8, a9), hn::Add(a10, a11));
  out[2] = hn::GetLane(hn::Add(s0, hn::Add(s1, s2)));
  return static_cast<double>(chains) * static_cast<double>(hn::Lanes(d)) * rounds;
}

}  // namespace HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
HWY_EXPORT(Chains);

double measured_products_per_second() {
  float numbers[3] = {0.999f, 0.001f, 0};
  double best = 0;
  for (int i = 0; i < 30; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const double products = HWY_DYNAMIC_DISPATCH(Chains)(500'000, numbers);
    const double rate = products / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (rate > best) best = rate;
  }
  return best;
}
#endif
