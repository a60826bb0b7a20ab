// Decoder: the best legal sequences of a call, with rules that are kept beside a base and without (see decode.cc).
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "constraint/rule.h"
#include "inference/cpu/kbest.h"
#include "inference/cpu/path_score.h"
#include "inference/cpu/viterbi.h"
#include "inference/rules/best_first.h"
#include "inference/rules/products.h"

namespace regccrf {

inline void add_sorted(const std::vector<int>& more, std::vector<int>& rules) {
  rules.insert(rules.end(), more.begin(), more.end());
  std::sort(rules.begin(), rules.end());
  rules.erase(std::unique(rules.begin(), rules.end()), rules.end());
}

template <class Real>
class Decoder {
 public:
  explicit Decoder(const Batch<Real>& batch) : Decoder(batch, MaxModel(batch.scores())) {}
  // With transition, start and end scores of the caller's own; emissions come with each sequence.
  Decoder(const Batch<Real>& batch, MaxModel model) : batch_(batch), best_(batch, std::move(model)) {}

  // The best legal sequence; false where there is none of finite score. `y`: [T]
  bool path(const Sequence<Real>& sequence, Arena& arena, Label* y) {
    const Constraint& constraint = batch_.constraint(sequence.index);
    if (constraint.memories() == 0) return best_.path(constraint, sequence, arena, y);
    const std::span<const Label> labels(y, static_cast<std::size_t>(sequence.T));
    std::vector<int> added;
    Constraint part = constraint.base();
    while (best_.path(part, sequence, arena, y)) {
      const std::vector<int> broken = constraint.rule_tables().broken(labels);
      if (broken.empty()) return true;
      add_sorted(broken, added);
      const RuleProduct product = product_with(constraint, added, batch_.options().rules.products);
      if (product.too_large) return search(part, constraint, sequence, y);
      if (!product.constraint) return false;
      part = *product.constraint;
    }
    return false;
  }

  double score(const Sequence<Real>& sequence, Arena& arena) {
    const Constraint& constraint = batch_.constraint(sequence.index);
    if (constraint.memories() == 0) return best_.score(constraint, sequence, arena);
    Label* y = arena.take<Label>(static_cast<std::size_t>(sequence.T));
    return path(sequence, arena, y) ? path_score(batch_.scores(), sequence, y)
                                    : -std::numeric_limits<double>::infinity();
  }

  // The k best legal sequences. A few illegal ones among the best are passed over; when there are many, their rules are
  // added.
  std::vector<Path> paths(const Sequence<Real>& sequence, int k, Arena& arena) {
    const Constraint& constraint = batch_.constraint(sequence.index);
    if (constraint.memories() == 0) {
      return best_paths(constraint, best_, batch_.scores(), sequence, k, arena, [](auto) { return Want::kept; });
    }
    std::vector<int> added;
    Constraint part = constraint.base();
    while (true) {
      int illegal = 0;
      bool enough = false;
      std::vector<int> all_broken;
      const auto legal = [&](std::span<const Label> labels) {
        const std::vector<int> broken = constraint.rule_tables().broken(labels);
        if (broken.empty()) return Want::kept;
        add_sorted(broken, all_broken);
        enough = ++illegal > kPassedOver + k;
        return enough ? Want::enough : Want::not_kept;
      };
      std::vector<Path> found = best_paths(part, best_, batch_.scores(), sequence, k, arena, legal);
      if (!enough) return found;
      add_sorted(all_broken, added);
      const RuleProduct product = product_with(constraint, added, batch_.options().rules.products);
      if (product.too_large) return best_first(part, constraint, best_.model(), batch_, sequence, k);
      if (!product.constraint) return {};
      part = *product.constraint;
    }
  }

 private:
  static constexpr int kPassedOver = 16;

  bool search(const Constraint& part, const Constraint& constraint, const Sequence<Real>& sequence, Label* y) {
    const std::vector<Path> found = best_first(part, constraint, best_.model(), batch_, sequence, 1);
    if (found.empty()) return false;
    std::copy(found[0].labels.begin(), found[0].labels.end(), y);
    return true;
  }

  const Batch<Real>& batch_;
  BestPaths<Real> best_;
};

}  // namespace regccrf
