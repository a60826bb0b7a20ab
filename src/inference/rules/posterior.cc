// Posterior decoding: the legal sequence with the largest expected number of right labels, which is Viterbi with label
// marginals for emissions and nothing for transitions. What scores forbid stays forbidden.
#include <limits>

#include "inference/rules/decode.h"
#include "inference/rules/sums.h"

namespace regccrf {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// Scores that are zero where a label or a pair of labels is possible, −inf where it is forbidden.
MaxModel flat(MaxModel model) {
  for (auto* scores : {&model.g, &model.start, &model.end}) {
    for (double& score : *scores) score = score == kNone ? kNone : 0;
  }
  return model;
}

}  // namespace

template <class Real>
std::vector<Path> posterior_decode(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  const Batch<Real> batch("posterior_decode", constraints, scores, options, KeptRules::obeyed);
  Sums<Real> expectations(batch, kAskedGap);
  Decoder<Real> best(batch, flat(MaxModel(batch.scores())));
  std::vector<Path> paths(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    const Constraint& constraint = batch.constraint(sequence.index);
    const int K = sequence.K;
    const std::size_t size = static_cast<std::size_t>(sequence.T) * K;
    Real* emissions = arena.take<Real>(size);
    Real* marginals = arena.take<Real>(size);
    for (std::int64_t t = 0; t < sequence.T; ++t) std::copy_n(sequence.at(t), K, emissions + t * K);
    Sequence<Real> dense{sequence.index, sequence.T, K, emissions, 0, 1, nullptr};
    Path& path = paths[sequence.index];
    const CertifiedSum sum = expectations(constraint, dense, arena, {.emissions = marginals});
    expectations.note(sequence, sum.gap);
    if (!sum.certified()) throw no_bound_error(batch.operation(), sequence.index);
    if (sum.log_z == kNone) {
      batch.impossible(sequence);
      path = {{}, kNone};
      return;
    }
    for (std::size_t i = 0; i < size; ++i) {
      if (emissions[i] == -std::numeric_limits<Real>::infinity()) marginals[i] = emissions[i];
    }
    dense.emissions = marginals;
    path.labels.resize(static_cast<std::size_t>(sequence.T));
    best.path(dense, arena, path.labels.data());
    for (std::int64_t t = 0; t < sequence.T; ++t) path.score += static_cast<double>(marginals[t * K + path.labels[t]]);
  });
  return paths;
}

template std::vector<Path> posterior_decode(const Constraints&, const Scores<float>&, const Options&);
template std::vector<Path> posterior_decode(const Constraints&, const Scores<double>&, const Options&);

}  // namespace regccrf
