// Takes the place of src/inference/cuda/warp.h in the emulated test.
#pragma once

#include <cuda_runtime.h>

namespace regccrf::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

template <class Integer>
Integer reduce_max(Integer x, emulated::Place place = emulated::Place::current()) {
  return __reduce_max_sync(kAllLanes, x, place);
}
template <class Integer>
Integer reduce_min(Integer x, emulated::Place place = emulated::Place::current()) {
  return __reduce_min_sync(kAllLanes, x, place);
}

inline void multiply_tile(double (&sum)[2], double m, double y, emulated::Place place = emulated::Place::current()) {
  const unsigned row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  const emulated::Lanes<double2> lanes(0xffffffffu, {m, y}, 7, place);
  for (unsigned n = 0; n < 2; ++n) {
    for (unsigned k = 0; k < 4; ++k) sum[n] = std::fma(lanes[row * 4 + k].x, lanes[(column + n) * 4 + k].y, sum[n]);
  }
}

inline void multiply_two_tiles(double (&upper)[2], double (&lower)[2], double m0, double m1, double y,
                               emulated::Place place = emulated::Place::current()) {
  multiply_tile(upper, m0, y, place);
  multiply_tile(lower, m1, y, place);
}

}  // namespace regccrf::cuda
