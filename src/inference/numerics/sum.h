// Sum: a sum of many doubles that keeps what each addition loses (Neumaier).
#pragma once

#include <cmath>

#include "base/host_device.h"

namespace regccrf {

struct Sum {
  double sum = 0, rest = 0;

  REGCCRF_BOTH void add(double x) {
    const double next = sum + x;
    if (std::isinf(next)) {
      sum = next;
      return;
    }
    rest += std::fabs(sum) >= std::fabs(x) ? (sum - next) + x : (x - next) + sum;
    sum = next;
  }
  // A product, and what rounding it loses.
  REGCCRF_BOTH void add(double x, double y) {
    add(x * y);
    rest += std::fma(x, y, -(x * y));
  }
  REGCCRF_BOTH void add(const Sum& other) {
    add(other.sum);
    rest += other.rest;
  }
  REGCCRF_BOTH double value() const { return sum + rest; }
};

}  // namespace regccrf
