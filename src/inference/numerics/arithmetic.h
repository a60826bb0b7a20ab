// What the fast passes need of floating-point arithmetic beyond the operators.
#pragma once

#include <bit>
#include <cstdint>

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

// 2^e, and the e of a number between 2^e and 2^(e + 1), in the normal range.
inline float power_of_two(float, int e) { return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23); }
inline double power_of_two(double, int e) { return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52); }
inline int exponent_of(float x) { return static_cast<int>(std::bit_cast<std::uint32_t>(x) >> 23) - 127; }
inline int exponent_of(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52) - 1023; }

}  // namespace regccrf
