// What numerics/bounds.h says of alpha above and beta below the truth, as kernels do it, with numbers of their own,
// since each direction is scaled by its own peak:
//   alpha   weights that would vanish although their score is finite are the smallest number instead, and a cell that
//           can be reached never falls below a floor that follows from the least gain (floor_for).
//   beta    what may have come from rounding tiny numbers is subtracted, and what is less than that is 0.
// A step is scaled by the peak of the step before it: its largest number is brought to 2^alpha_peak or 2^beta_peak,
// which leaves headroom for the sums of two steps. An overflow is noticed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace regccrf::cuda {

// Whether a sequence's results are right. What is not counted is bad or outside the language: its counts are zeros.
enum Trust : std::int32_t { trusted, untrusted, not_counted };

template <class P>
struct Bounds;
template <>
struct Bounds<float> {
  static constexpr std::int32_t alpha_peak = 96, beta_peak = 64;
  static constexpr float alpha_top = 0x1p96f, beta_top = 0x1p64f;
  static constexpr float least_gain = 0x1p-121f, least_sum = 0x1p-125f;
  static constexpr float lift = 0x1p126f;  // brings whatever is not 0 above a floor
  static constexpr float normal = 0x1p-126f, least = 0x1p-149f;
  static constexpr float inexact = 0x1p-120f;  // more than a sum can have gained by rounding to what is not normal
  static constexpr double least_z = 1;         // alpha · beta is exact from here on …
  static constexpr double least_product = 0x1p-100;   // … and from here on
  static constexpr float most = 1e37f;                // of a sum that can be trusted
  static constexpr std::int32_t most_exponent = 120;  // where exponents leave this range, so do numbers that count
};
template <>
struct Bounds<double> {
  static constexpr std::int32_t alpha_peak = 900, beta_peak = 500;
  static constexpr double alpha_top = 0x1p900, beta_top = 0x1p500;
  static constexpr double least_gain = 0x1p-920, least_sum = 0x1p-1020;
  static constexpr double lift = 0x1p1020;
  static constexpr double normal = 0x1p-1022, least = 0x1p-1074;
  static constexpr double inexact = 0x1p-1000;
  static constexpr double least_z = 0x1p-100, least_product = 0x1p-950;
  static constexpr double most = 1e300;
  static constexpr std::int32_t most_exponent = 1000;
  // What alpha has lost of a node where pieces of a scan meet was less than 2^-96, and may have grown to this since.
  static constexpr double boundary = 0x1p504;
  static constexpr std::int32_t most_growth = 600;
};

// The lowest floor, for gains that are 0 or at least this.
template <class P>
__device__ P floor_for(P least_gain) {
  return 2 * Bounds<P>::least_sum / max(least_gain, Bounds<P>::least_gain);
}

// Weights that would vanish are stored as the smallest denormal number, which says "finite score", and -inf as 0.
// Upwards makes the former the smallest normal number, Downwards 0. So kernels must not be built to flush denormals
// (-ftz=true).
struct Upwards {
  template <class P>
  static __device__ P weight(P w) {
    return w > P{0} ? max(w, Bounds<P>::normal) : P{0};
  }
  template <class P>
  static __device__ P product(P weight, P sum, P scale, P floor) {
    return max(sum * scale * weight, min(floor, min(sum, weight) * Bounds<P>::lift));
  }
};
struct Downwards {
  template <class P>
  static __device__ P weight(P w) {
    return w > Bounds<P>::normal ? w : P{0};
  }
  template <class P>
  static __device__ P product(P weight, P sum, P scale, P) {
    return max(P{0}, (sum * scale - Bounds<P>::inexact * scale) * weight);
  }
};

}  // namespace regccrf::cuda
