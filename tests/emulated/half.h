// Numbers of 16 bits, rounded to the nearest, of two equally near to the even one.
#pragma once

#include <cmath>
#include <cstdint>

namespace emulated {

template <int kExponentBits>
class Half {
 public:
  Half() = default;
  Half(double x) {
    const double size = std::fabs(x);
    const int exponent =
        size < std::ldexp(1.0, 1 - kBias) ? 1 - kBias : std::ilogb(size);  // the last unit shrinks no more
    std::uint32_t bits = kInfinity;
    if (std::isnan(x)) {
      bits = 0x7fff;
    } else if (size < std::ldexp(2 - std::ldexp(1.0, -kFractionBits - 1), kBias)) {
      const double units = std::nearbyint(std::ldexp(size, kFractionBits - exponent));
      bits = (static_cast<std::uint32_t>(exponent + kBias - 1) << kFractionBits) + static_cast<std::uint32_t>(units);
    }
    bits_ = static_cast<std::uint16_t>(bits | (std::signbit(x) ? 0x8000 : 0));
  }
  operator float() const {
    const int size = bits_ & 0x7fff, exponent = size >> kFractionBits, fraction = size - (exponent << kFractionBits);
    const int units = exponent ? fraction + (1 << kFractionBits) : fraction;
    float x = std::ldexp(static_cast<float>(units), (exponent ? exponent : 1) - kBias - kFractionBits);
    if (size >= kInfinity) x = size == kInfinity ? INFINITY : NAN;
    return bits_ & 0x8000 ? -x : x;
  }

 private:
  static constexpr int kFractionBits = 15 - kExponentBits, kBias = (1 << (kExponentBits - 1)) - 1,
                       kInfinity = ((1 << kExponentBits) - 1) << kFractionBits;
  std::uint16_t bits_;
};

}  // namespace emulated
