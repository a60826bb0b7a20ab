// Losses of gold that may be known in part (see gold_loss.h).
#include "train/gold_loss.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "constraint/pairs.h"
#include "inference/relax.h"
#include "regccrf/loss.h"

namespace regccrf {

bool gold_is_known(const Dataset& data, std::int64_t sequence) {
  const auto begin = data.gold.begin() + data.position[sequence], end = data.gold.begin() + data.position[sequence + 1];
  return std::find(begin, end, kUnknownLabel) == end;
}

namespace {

// What may stand at each row: the gold label with any mark, or anything.
void allow_gold(int K, int width, GoldSequences& sequences) {
  sequences.allowed.clear();
  if (sequences.known == sequences.first.size()) return;
  sequences.allowed.assign(sequences.gold.size() * static_cast<std::size_t>(width), 0);
  for (std::int64_t t = 0; t < sequences.rows(); ++t) {
    const auto row = sequences.allowed.begin() + t * width;
    const Label gold = sequences.gold[t];
    if (gold == kUnknownLabel) std::fill_n(row, width, std::uint8_t{1});
    for (Label a = gold; gold != kUnknownLabel && a < width; a += K) row[a] = 1;
  }
}

// Sequences with unknown gold have `allowed` instead.
void mark_gold(int K, GoldSequences& sequences) {
  const MarkedLabels marked{K};
  for (std::size_t i = 0; i < sequences.known; ++i) {
    Label* const gold = sequences.gold.data() + sequences.first[i];
    for (std::int64_t t = sequences.length[i] - 1; t >= 0; --t)
      gold[t] = t == 0 ? marked.first(gold[t]) : marked.pair(gold[t - 1], gold[t]);
  }
}

}  // namespace

void number_gold(int K, int width, GoldSequences& sequences) {
  allow_gold(K, width, sequences);
  if (width > K) mark_gold(K, sequences);
}

namespace {

double weighted_total(const Loss& loss, std::span<const double> weights) {
  if (weights.empty()) return loss.total();
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * loss.values[i];
  return sum;
}

constexpr std::int64_t kProducts = 100'000;  // of a base times the rules that its best path breaks

// Which sequences are under all rules (0) and which under the base alone (1), with which gaps, and what came out.
class Allowed {
 public:
  Allowed(RuleLosses* rules, std::size_t sequences) : rules_(rules), which_(sequences), gaps_(sequences) {
    if (!rules) return;
    if (rules->allowed.empty()) rules->allowed.assign(sequences, rules->max_gap);
    rules->certainty = {};
    for (std::size_t i = 0; i < sequences; ++i) {
      which_[i] = std::isinf(rules->allowed[i]);
      max_gaps_.push_back(which_[i] ? rules->max_gap : rules->allowed[i]);
    }
  }
  std::span<const std::int32_t> which(std::size_t begin, std::size_t count) const {
    return rules_ ? std::span(which_).subspan(begin, count) : std::span<const std::int32_t>();
  }
  std::span<const double> max_gaps(std::size_t begin, std::size_t count) const {
    return rules_ ? std::span(max_gaps_).subspan(begin, count) : std::span<const double>();
  }
  std::span<double> gaps(std::size_t begin, std::size_t count) { return std::span(gaps_).subspan(begin, count); }

  // The losses of the first `known` are one sum each, those of the others a difference of two. `weights`: of the
  // sequences, or empty.
  void note(std::size_t known, std::span<const double> weights) {
    for (std::size_t i = 0; rules_ && i < gaps_.size(); ++i) {
      double& allowed = rules_->allowed[i];
      while ((i < known ? allowed : allowed * (2 + allowed)) < gaps_[i]) allowed = relaxed_gap(allowed);
      const bool more = allowed > rules_->max_gap, bound = std::isinf(allowed);
      const double gap = bound ? 0 : gaps_[i];
      rules_->certainty.add({gap, (weights.empty() ? 1 : weights[i]) * std::log1p(gap), more, bound});
    }
  }

 private:
  RuleLosses* rules_;
  std::vector<std::int32_t> which_;
  std::vector<double> max_gaps_, gaps_;
};

}  // namespace

std::int64_t affordable_cells(std::int64_t positions) {
  return std::clamp<std::int64_t>(10'000'000 / std::max<std::int64_t>(positions, 1), 100, 2000);
}

double gold_loss(const Constraint& constraint, const GoldSequences& sequences, std::span<const double> h,
                 std::span<const double> g, std::span<double> dh, std::span<double> dg, int threads,
                 Workspace& workspace, RuleLosses* rules) {
  const std::span<const std::int64_t> first(sequences.first), length(sequences.length);
  const int K = constraint.labels().size();
  const std::size_t known = sequences.known, unknown = first.size() - known;
  const std::array<Constraint, 2> both = {constraint, constraint.base()};
  Allowed allowed(rules, first.size());
  LossOptions options;
  options.threads = threads;
  options.workspace = &workspace;
  if (rules) options.rules = {.products = kProducts, .cells_a_position = rules->cells_a_position};
  options.uncertified = Uncertified::relax;
  const std::span<const double> weights(sequences.weight);
  Gradients<double> gradients{dh, dg, {}, {}};
  double value = 0;
  std::fill(dg.begin(), dg.end(), 0.0);
  if (known > 0) {
    const Layout layout = Layout::ragged(first.first(known), length.first(known));
    const Scores<double> scores = Scores<double>(h, g, layout).with_labels(K);
    if (!weights.empty()) gradients.weights = weights.first(known);
    options.gaps = allowed.gaps(0, known);
    options.max_gaps = allowed.max_gaps(0, known);
    const Constraints constraints(both, allowed.which(0, known));
    value = weighted_total(nll(constraints, scores, sequences.gold, gradients, options), gradients.weights);
  }
  if (unknown > 0) {
    std::vector<double> more(dg.size());
    gradients.transitions = more;
    const Layout layout = Layout::ragged(first.subspan(known), length.subspan(known));
    const Scores<double> scores = Scores<double>(h, g, layout).with_labels(K);
    if (!weights.empty()) gradients.weights = weights.subspan(known);
    options.gaps = allowed.gaps(known, unknown);
    options.max_gaps = allowed.max_gaps(known, unknown);
    const Constraints constraints(both, allowed.which(known, unknown));
    value += weighted_total(partial_nll(constraints, scores, sequences.allowed, gradients, options), gradients.weights);
    for (std::size_t ab = 0; ab < dg.size(); ++ab) dg[ab] += more[ab];
  }
  allowed.note(known, weights);
  return value;
}

}  // namespace regccrf
