// A path's own score, position by position, summed without loss; the same terms on every device.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "inference/numerics/sum.h"

namespace regccrf {

// What position t of T adds: its emission, the transition into it, start and end. `label(t)`: of the path. `scores` has
// emission(t, a), transition(a, b), start(a) and end(a), which are 0 where there are none.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Terms, class LabelAt>
REGCCRF_BOTH void add_position(const Terms& scores, std::int64_t T, std::int64_t t, const LabelAt& label, Sum& sum) {
  const std::int64_t a = label(t);
  sum.add(scores.emission(t, a));
  if (t == 0) sum.add(scores.start(a));
  if (t > 0) sum.add(scores.transition(label(t - 1), a));
  if (t + 1 == T) sum.add(scores.end(a));
}

}  // namespace regccrf
