// What the fast passes need of floating-point arithmetic beyond the operators.
#pragma once

#include <cmath>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace regccrf {

// Numbers below the normal range become zero, which is faster than keeping them and is what the bounds assume.
class FlushToZero {
 public:
#if defined(__SSE__)
  FlushToZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushToZero() { _mm_setcsr(before_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  unsigned before_;
#endif
};

// A sum of many doubles that keeps what each addition loses (Neumaier).
class Sum {
 public:
  void add(double x) {
    const double next = sum_ + x;
    rest_ += std::abs(sum_) >= std::abs(x) ? (sum_ - next) + x : (x - next) + sum_;
    sum_ = next;
  }
  double value() const { return sum_ + rest_; }

 private:
  double sum_ = 0, rest_ = 0;
};

}  // namespace regccrf
