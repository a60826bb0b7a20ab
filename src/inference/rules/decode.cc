// Decoding, with rules and without: viterbi, viterbi_score, k_best.
//
// Under rules that are kept beside a base, by adding what was broken (Tromble & Eisner 2006): the best path under the
// base; if it breaks rules, the best path under the base times these rules, and so on. The product's sequences include
// all legal ones, so its best path is the best legal one as soon as it is legal. Most sentences break no rule at all.
// Where a product would be too large, a best-first search takes over.
#include "inference/rules/decode.h"

namespace regccrf {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

}  // namespace

template <class Real>
std::vector<Path> viterbi(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  const Batch<Real> batch("viterbi", constraints, scores, options, KeptRules::obeyed);
  Decoder<Real> decoder(batch);
  std::vector<Path> paths(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    Path& path = paths[sequence.index];
    path.labels.resize(static_cast<std::size_t>(sequence.T));
    if (decoder.path(sequence, arena, path.labels.data())) {
      path.score = path_score(batch.scores(), sequence, path.labels.data());
      return;
    }
    batch.impossible(sequence);
    path = {{}, kNone};
  });
  return paths;
}

template <class Real>
std::vector<double> viterbi_score(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  const Batch<Real> batch("viterbi_score", constraints, scores, options, KeptRules::obeyed);
  Decoder<Real> decoder(batch);
  std::vector<double> values(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    values[sequence.index] = decoder.score(sequence, arena);
  });
  return values;
}

template <class Real>
std::vector<std::vector<Path>> k_best(const Constraints& constraints, const Scores<Real>& scores, int k,
                                      const Options& options) {
  if (k < 1) throw Error("[k_best] k is " + std::to_string(k) + ", expected 1 or more");
  const Batch<Real> batch("k_best", constraints, scores, options, KeptRules::obeyed);
  Decoder<Real> decoder(batch);
  std::vector<std::vector<Path>> paths(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    paths[sequence.index] = decoder.paths(sequence, k, arena);
    if (paths[sequence.index].empty()) batch.impossible(sequence);
  });
  return paths;
}

#define REGCCRF_INSTANTIATE(Real)                                                                      \
  template std::vector<Path> viterbi(const Constraints&, const Scores<Real>&, const Options&);         \
  template std::vector<double> viterbi_score(const Constraints&, const Scores<Real>&, const Options&); \
  template std::vector<std::vector<Path>> k_best(const Constraints&, const Scores<Real>&, int, const Options&)
REGCCRF_INSTANTIATE(float);
REGCCRF_INSTANTIATE(double);

}  // namespace regccrf
