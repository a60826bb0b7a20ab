// A weighted choice in wide numbers, the same on every device: samples are to be the same too.
#pragma once

#include <cstdint>

#include "inference/numerics/wide.h"

namespace regccrf {

// Draws one of the things that `each(take)` hands to take(what, weight), in that order; -1 where none has a weight.
// `u`: uniform in [0, 1).
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Each>
REGCCRF_BOTH std::int32_t draw_one(double u, const Each& each) {
  Wide total = kWideZero;
  each([&](std::int32_t, Wide weight) { total = total + weight; });
  double sum = 0;
  std::int32_t chosen = -1;
  bool done = false;
  each([&](std::int32_t what, Wide weight) {
    if (done || weight.m == 0) return;
    const double p = ratio(weight, total);
    if (p == 0) return;
    chosen = what;  // the last possible one stands, should rounding leave the sum below u
    sum += p;
    done = u < sum;
  });
  return chosen;
}

}  // namespace regccrf
