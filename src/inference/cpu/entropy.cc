// Entropy of P(y | x, L) and its gradients. Accepting paths and sequences are one and the same (the automaton is
// unambiguous), so the entropy is the mean of −log P(y) over paths, a sum of local conditional entropies in which
// nothing cancels; and its gradient is the covariance of counts with −log P(y).
#include "inference/cpu/covariance.h"
#include "regccrf/loss.h"

namespace regccrf {

namespace {

// No score adds to it but by way of probabilities.
struct PathSurprise : Surprise {
  double emission(std::int64_t, std::int32_t) const { return 0; }
  double transition(std::int32_t, std::int32_t) const { return 0; }
  double start(std::int32_t) const { return 0; }
  double end(std::int32_t) const { return 0; }
};

}  // namespace

template <class Real>
Loss entropy(const Constraints& constraints, const Scores<Real>& scores, const Gradients<Real>& gradients,
             const Options& options) {
  const Batch<Real> batch("entropy", constraints, scores, options);
  return covariance(batch, PathSurprise{}, gradients);
}

template <class Real>
std::vector<double> entropy(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  return entropy(constraints, scores, Gradients<Real>{}, options).values;
}

#define REGCCRF_INSTANTIATE(Real)                                                                         \
  template Loss entropy(const Constraints&, const Scores<Real>&, const Gradients<Real>&, const Options&); \
  template std::vector<double> entropy(const Constraints&, const Scores<Real>&, const Options&)
REGCCRF_INSTANTIATE(float);
REGCCRF_INSTANTIATE(double);

}  // namespace regccrf
