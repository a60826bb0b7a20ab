// Adding what was broken (see decode.h), and the tasks viterbi, viterbi_score and k_best.
#include "inference/rules/decode.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "constraint/rule.h"
#include "inference/cpu/kbest.h"
#include "inference/cpu/path_score.h"
#include "inference/rules/best_first.h"
#include "inference/rules/products.h"

namespace regccrf {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr int kPassedOver = 16;  // illegal paths among the k best, beyond k, before rules are added

// BestPaths keeps what it makes of a constraint until the call ends, and a call may meet very many large products:
// these get one of their own.
bool is_large(const Constraint& product) { return product.size().products > 50'000; }

void add_sorted(const std::vector<int>& more, std::vector<int>& rules) {
  rules.insert(rules.end(), more.begin(), more.end());
  std::sort(rules.begin(), rules.end());
  rules.erase(std::unique(rules.begin(), rules.end()), rules.end());
}

}  // namespace

template <class Real>
bool Decoder<Real>::path(const Sequence<Real>& sequence, Arena& arena, Label* y) {
  const Constraint& constraint = batch_.constraint(sequence.index);
  if (constraint.memories() == 0) return best_.path(constraint, sequence, arena, y);
  const std::span<const Label> labels(y, static_cast<std::size_t>(sequence.T));
  std::vector<int> added;
  Constraint part = constraint.base();
  while (path_under(part, sequence, arena, y)) {
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

template <class Real>
bool Decoder<Real>::path_under(const Constraint& part, const Sequence<Real>& sequence, Arena& arena, Label* y) {
  if (!is_large(part)) return best_.path(part, sequence, arena, y);
  return BestPaths<Real>(batch_, best_.model()).path(part, sequence, arena, y);
}

template <class Real>
bool Decoder<Real>::search(const Constraint& part, const Constraint& constraint, const Sequence<Real>& sequence,
                           Label* y) {
  const std::vector<std::vector<Label>> found = best_first(part, constraint, best_.model(), batch_, sequence, 1);
  if (found.empty()) return false;
  std::copy(found[0].begin(), found[0].end(), y);
  return true;
}

template <class Real>
double Decoder<Real>::score(const Sequence<Real>& sequence, Arena& arena) {
  const Constraint& constraint = batch_.constraint(sequence.index);
  if (constraint.memories() == 0) return best_.score(constraint, sequence, arena);
  Label* y = arena.take<Label>(static_cast<std::size_t>(sequence.T));
  return path(sequence, arena, y) ? path_score(batch_.scores(), sequence, y) : kNone;
}

// A few illegal sequences among the best are passed over; when there are many, their rules are added.
template <class Real>
std::vector<Path> Decoder<Real>::paths(const Sequence<Real>& sequence, int k, Arena& arena) {
  const Constraint& constraint = batch_.constraint(sequence.index);
  if (constraint.memories() == 0)
    return best_paths(constraint, best_, batch_.scores(), sequence, k, arena, [](auto) { return Want::kept; });
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
    std::optional<BestPaths<Real>> own;
    if (is_large(part)) own.emplace(batch_, best_.model());
    std::vector<Path> found = best_paths(part, own ? *own : best_, batch_.scores(), sequence, k, arena, legal);
    if (!enough) return found;
    add_sorted(all_broken, added);
    const RuleProduct product = product_with(constraint, added, batch_.options().rules.products);
    if (product.too_large) return searched_paths(part, constraint, sequence, k);
    if (!product.constraint) return {};
    part = *product.constraint;
  }
}

template <class Real>
std::vector<Path> Decoder<Real>::searched_paths(const Constraint& part, const Constraint& constraint,
                                                const Sequence<Real>& sequence, int k) {
  std::vector<Path> paths;
  for (std::vector<Label>& labels : best_first(part, constraint, best_.model(), batch_, sequence, k)) {
    const double score = path_score(batch_.scores(), sequence, labels.data());
    paths.push_back({std::move(labels), score});
  }
  return paths;
}

template class Decoder<float>;
template class Decoder<double>;

template <class Real>
std::vector<Path> viterbi(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  const Batch<Real> batch("viterbi", constraints, scores, options, KeptRules::obeyed);
  Decoder<Real> decoder(batch, MaxModel(batch.scores()));
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
  Decoder<Real> decoder(batch, MaxModel(batch.scores()));
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
  Decoder<Real> decoder(batch, MaxModel(batch.scores()));
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
