// log_z with gradients, and its second derivative in a direction: ∇²log_z · v is the covariance of counts with what a
// path's score gains along v. One interface: loss.h.
#include <limits>
#include <vector>

#include "inference/cpu/covariance.h"
#include "inference/cpu/expectation.h"
#include "inference/cpu/gradients.h"
#include "regccrf/loss.h"

namespace regccrf {
namespace {

// What the score of a path gains along a direction.
template <class Real>
class PathGain : public Gain {
 public:
  PathGain(const Direction<Real>& direction, int K) : direction_(direction), K_(K) {}
  double emission(std::int64_t row, std::int32_t a) const { return at(direction_.emissions, row * K_ + a); }
  double transition(std::int32_t a, std::int32_t b) const { return at(direction_.transitions, a * K_ + b); }
  double start(std::int32_t a) const { return at(direction_.start, a); }
  double end(std::int32_t a) const { return at(direction_.end, a); }

 private:
  static double at(std::span<const Real> numbers, std::int64_t i) {
    return numbers.empty() ? 0.0 : static_cast<double>(numbers[static_cast<std::size_t>(i)]);
  }
  const Direction<Real>& direction_;
  int K_;
};

template <class Real>
void check_direction(const Batch<Real>& batch, const Direction<Real>& direction) {
  const auto K = static_cast<std::size_t>(batch.K());
  const auto check = [&](const char* what, std::size_t given, std::size_t expected, const char* shape) {
    if (given != 0) check_size(batch.operation(), what, given, expected, shape);
  };
  check("the emissions' direction", direction.emissions.size(), static_cast<std::size_t>(batch.rows()) * K,
        "[rows, K]");
  check("the transitions' direction", direction.transitions.size(), K * K, "[K, K]");
  check("the start scores' direction", direction.start.size(), K, "[K]");
  check("the end scores' direction", direction.end.size(), K, "[K]");
}

}  // namespace

template <class Real>
Loss curvature(const Constraints& constraints, const Scores<Real>& scores, const Direction<Real>& direction,
               const Gradients<Real>& gradients, const Options& options) {
  const Batch<Real> batch("curvature", constraints, scores, options);
  check_direction(batch, direction);
  return covariance(batch, PathGain<Real>(direction, batch.K()), gradients);
}

#define REGCCRF_INSTANTIATE(Real)                                                                                  \
  template Loss curvature(const Constraints&, const Scores<Real>&, const Direction<Real>&, const Gradients<Real>&, \
                          const Options&)
REGCCRF_INSTANTIATE(float);
REGCCRF_INSTANTIATE(double);

}  // namespace regccrf
