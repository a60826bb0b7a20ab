// Decoder: the best legal sequences, with rules that are kept beside a base and without. By adding what was broken
// (Tromble & Eisner 2006): the best path under the base; if it breaks rules, the best path under the base times these
// rules, and so on. The product's sequences include all legal ones, so its best path is the best legal one as soon as
// it is legal. Most sentences break no rule at all. Where a product would be too large, a best-first search takes over.
#pragma once

#include <utility>
#include <vector>

#include "inference/cpu/viterbi.h"

namespace regccrf {

// One object serves all threads of a call. A sequence may have other emissions
// than the call's, and `model` other scores: posterior decoding is this with label marginals for emissions and nothing
// for transitions, and so exact for the marginals that it is given. Error of kind `limit` past options.rules.
template <class Real>
class Decoder {
 public:
  Decoder(const Batch<Real>& batch, MaxModel model) : batch_(batch), best_(batch, std::move(model)) {}

  // The best legal sequence; false where there is none of finite score. `y`: [T]
  bool path(const Sequence<Real>& sequence, Arena& arena, Label* y);
  // The k best, under the call's own scores.
  std::vector<Path> paths(const Sequence<Real>& sequence, int k, Arena& arena);
  // The best score alone, under the call's own scores; −inf where there is none.
  double score(const Sequence<Real>& sequence, Arena& arena);

 private:
  bool path_under(const Constraint& part, const Sequence<Real>& sequence, Arena& arena, Label* y);
  bool search(const Constraint& part, const Constraint& constraint, const Sequence<Real>& sequence, Label* y);
  std::vector<Path> searched_paths(const Constraint& part, const Constraint& constraint, const Sequence<Real>& sequence,
                                   int k);

  const Batch<Real>& batch_;
  BestPaths<Real> best_;
};

extern template class Decoder<float>;
extern template class Decoder<double>;

}  // namespace regccrf
