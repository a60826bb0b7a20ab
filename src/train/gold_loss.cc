// Losses of gold that may be known in part (see gold_loss.h).
#include "train/gold_loss.h"

#include <algorithm>

#include "regccrf/loss.h"

namespace regccrf {

bool gold_is_known(const Dataset& data, std::int64_t sequence) {
  const auto begin = data.gold.begin() + data.position[sequence], end = data.gold.begin() + data.position[sequence + 1];
  return std::find(begin, end, kUnknownLabel) == end;
}

void allow_gold(int K, GoldSequences& sequences) {
  sequences.allowed.clear();
  if (sequences.known == sequences.first.size()) return;
  sequences.allowed.assign(sequences.gold.size() * static_cast<std::size_t>(K), 0);
  for (std::int64_t t = 0; t < sequences.rows(); ++t) {
    const auto row = sequences.allowed.begin() + t * K;
    const Label gold = sequences.gold[t];
    if (gold == kUnknownLabel) std::fill_n(row, K, std::uint8_t{1});
    if (gold != kUnknownLabel) row[gold] = 1;
  }
}

namespace {

double weighted_total(const Loss& loss, std::span<const double> weights) {
  if (weights.empty()) return loss.total();
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * loss.values[i];
  return sum;
}

}  // namespace

double gold_loss(const Constraint& constraint, const GoldSequences& sequences, std::span<const double> h,
                 std::span<const double> g, std::span<double> dh, std::span<double> dg, int threads,
                 Workspace& workspace) {
  const std::span<const std::int64_t> first(sequences.first), length(sequences.length);
  const std::size_t known = sequences.known;
  LossOptions options;
  options.threads = threads;
  options.workspace = &workspace;
  const std::span<const double> weights(sequences.weight);
  Gradients<double> gradients{dh, dg, {}, {}};
  double value = 0;
  std::fill(dg.begin(), dg.end(), 0.0);
  if (known > 0) {
    const Scores scores(h, g, Layout::ragged(first.first(known), length.first(known)));
    if (!weights.empty()) gradients.weights = weights.first(known);
    value = weighted_total(nll(constraint, scores, sequences.gold, gradients, options), gradients.weights);
  }
  if (known == first.size()) return value;
  std::vector<double> more(dg.size());
  gradients.transitions = more;
  const Scores scores(h, g, Layout::ragged(first.subspan(known), length.subspan(known)));
  if (!weights.empty()) gradients.weights = weights.subspan(known);
  value += weighted_total(partial_nll(constraint, scores, sequences.allowed, gradients, options), gradients.weights);
  for (std::size_t ab = 0; ab < dg.size(); ++ab) dg[ab] += more[ab];
  return value;
}

}  // namespace regccrf
