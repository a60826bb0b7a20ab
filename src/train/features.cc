// Which weights there are, and what they say about a data set (see features.h).
#include "train/features.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "constraint/pairs.h"
#include "regccrf/error.h"
#include "regccrf/inference.h"
#include "tagger/marked_scores.h"

namespace regccrf {

namespace {

constexpr std::int64_t kDecodeCells = 1 << 22;  // emissions of the positions that are decoded at a time

// [attributes + 1] where an attribute's occurrences begin, when sorted by attribute.
std::vector<std::int64_t> count_attributes(const Dataset& data, std::int32_t attributes) {
  std::vector<std::int64_t> begin(static_cast<std::size_t>(attributes) + 1, 0);
  for (std::int32_t i : data.attribute) ++begin[i + 1];
  for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  return begin;
}

// The gold labels of each attribute's positions, attribute by attribute; kUnknownLabel among them.
std::vector<Label> gold_by_attribute(const Dataset& data, const std::vector<Label>& gold,
                                     const std::vector<std::int64_t>& begin) {
  std::vector<Label> labels(data.attribute.size());
  std::vector<std::int64_t> next(begin.begin(), begin.end() - 1);
  for (std::int64_t t = 0; t < data.positions(); ++t) {
    for (std::int64_t k = data.item[t]; k < data.item[t + 1]; ++k) labels[next[data.attribute[k]]++] = gold[t];
  }
  return labels;
}

std::vector<std::int32_t> bigrams(const Dataset& data, int K, bool all) {
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(K) * K, all);
  for (std::int64_t i = 0; i < data.sequences() && !all; ++i) {
    for (std::int64_t t = data.position[i] + 1; t < data.position[i + 1]; ++t) {
      const Label a = data.gold[t - 1], b = data.gold[t];
      if (a != kUnknownLabel && b != kUnknownLabel) seen[a * K + b] = 1;
    }
  }
  std::vector<std::int32_t> result;
  for (std::size_t ab = 0; ab < seen.size(); ++ab) {
    if (seen[ab]) result.push_back(static_cast<std::int32_t>(ab));
  }
  return result;
}

// Where the weight of (attribute, label) stands among the columns; there may be none.
std::optional<std::int64_t> find_feature(const Columns& features, std::int32_t attribute, Label label) {
  const auto first = features.label.begin() + features.begin[attribute];
  const auto last = features.label.begin() + features.begin[attribute + 1];
  const auto found = std::lower_bound(first, last, label);
  if (found == last || *found != label) return std::nullopt;
  return found - features.label.begin();
}

// [positions] gold as marked labels: pairs of neighbours, where both are known.
std::vector<Label> gold_pairs(const Dataset& data, int K) {
  const MarkedLabels marked{K};
  std::vector<Label> pairs(data.gold.size(), kUnknownLabel);
  for (std::int64_t i = 0; i < data.sequences(); ++i) {
    for (std::int64_t t = data.position[i] + 1; t < data.position[i + 1]; ++t) {
      const Label a = data.gold[t - 1], b = data.gold[t];
      if (a != kUnknownLabel && b != kUnknownLabel) pairs[t] = marked.pair(a, b);
    }
  }
  return pairs;
}

// [labels of attributes] the sum of each weight's values where gold has it.
std::vector<double> gold_frequencies(const Dataset& data, const std::vector<Label>& gold, const Columns& features) {
  std::vector<double> sum(features.label.size(), 0);
  for (std::int64_t i = 0; i < data.sequences(); ++i) {
    const double weight = data.weight.empty() ? 1 : data.weight[i];
    for (std::int64_t t = data.position[i]; t < data.position[i + 1]; ++t) {
      for (std::int64_t k = data.item[t]; k < data.item[t + 1]; ++k) {
        const double value = data.value.empty() ? 1 : static_cast<double>(data.value[k]);
        if (const auto f = find_feature(features, data.attribute[k], gold[t])) sum[*f] += weight * value;
      }
    }
  }
  return sum;
}

// [K, K] the same for transitions.
std::vector<double> bigram_frequencies(const Dataset& data, int K) {
  std::vector<double> sum(static_cast<std::size_t>(K) * K, 0);
  for (std::int64_t i = 0; i < data.sequences(); ++i) {
    for (std::int64_t t = data.position[i] + 1; t < data.position[i + 1]; ++t) {
      const Label a = data.gold[t - 1], b = data.gold[t];
      if (a != kUnknownLabel && b != kUnknownLabel) sum[a * K + b] += data.weight.empty() ? 1 : data.weight[i];
    }
  }
  return sum;
}

// Leaves out weights that gold asks for less often.
void leave_out_rare(const Dataset& data, const std::vector<Label>& gold, double least, Columns& features) {
  const std::vector<double> sums = gold_frequencies(data, gold, features);
  std::vector<Label> kept;
  std::int64_t f = 0;
  for (std::size_t i = 1; i < features.begin.size(); ++i) {
    for (; f < features.begin[i]; ++f) {
      if (sums[f] >= least) kept.push_back(features.label[f]);
    }
    features.begin[i] = static_cast<std::int64_t>(kept.size());
  }
  features.label = std::move(kept);
}

// Weights for `gold`, which is what attributes are seen with, or for all labels below `all`, where that is not 0.
// `excluded`: attributes that have other weights only.
Columns make_columns(const Dataset& data, const std::vector<Label>& gold, std::int32_t attributes, int all,
                     std::span<const Weighs> weighs, Weighs excluded, const TrainOptions& options) {
  Columns features;
  features.begin.reserve(static_cast<std::size_t>(attributes) + 1);
  const std::vector<std::int64_t> begin = count_attributes(data, attributes);
  std::vector<Label> labels;
  if (all == 0) labels = gold_by_attribute(data, gold, begin);
  for (std::int32_t i = 0; i < attributes; ++i) {
    const bool wanted = weighs.empty() ? excluded != Weighs::label : weighs[i] != excluded;
    if (!wanted || begin[i + 1] - begin[i] < options.min_count) {
      // it has none
    } else if (all > 0) {
      for (Label a = 0; a < all; ++a) features.label.push_back(a);
    } else {
      const auto first = labels.begin() + begin[i], last = labels.begin() + begin[i + 1];
      std::sort(first, last);
      std::copy_if(first, std::unique(first, last), std::back_inserter(features.label),
                   [](Label a) { return a != kUnknownLabel; });
    }
    features.begin.push_back(static_cast<std::int64_t>(features.label.size()));
  }
  if (options.min_frequency > 0) leave_out_rare(data, gold, options.min_frequency, features);
  features.label.shrink_to_fit();
  if (features.label.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw Error("[train] " + std::to_string(features.label.size()) +
                " weights, and 2,147,483,647 are the limit; min_count (--min-count) leaves out rare attributes, and "
                "without all_features and all_transitions only weights that are seen in the data are there");
  }
  return features;
}

}  // namespace

Features make_features(const Dataset& data, std::int32_t attributes, int K, const TrainOptions& options,
                       std::span<const Weighs> weighs) {
  Features features;
  static_cast<Columns&>(features) =
      make_columns(data, data.gold, attributes, options.all_features ? K : 0, weighs, Weighs::pair, options);
  features.K = K;
  if (options.transitions) features.bigram = bigrams(data, K, options.all_transitions);
  if (options.min_frequency > 0) {
    const std::vector<double> sums = bigram_frequencies(data, K);
    std::erase_if(features.bigram, [&](std::int32_t ab) { return sums[ab] < options.min_frequency; });
  }
  if (std::all_of(weighs.begin(), weighs.end(), [](Weighs x) { return x == Weighs::label; })) return features;
  features.pairs = make_columns(data, gold_pairs(data, K), attributes, options.all_transitions ? K * K : 0, weighs,
                                Weighs::label, options);
  features.pairs.K = MarkedLabels{K}.size();
  return features;
}

Constraint inference_constraint(const Features& features, const Constraint& constraint) {
  return features.has_pairs() ? over_pairs(constraint) : constraint;
}

namespace {

std::int64_t take_over_pairs(const Model& model, const Training& training, const Features& features,
                             std::span<const std::optional<Label>> theirs, std::span<double> w) {
  if (!features.has_pairs() || !model.has_pairs()) return 0;
  std::int64_t taken = 0;
  for (std::int32_t i = 0; i < features.pairs.attributes(); ++i) {
    if (features.pairs.begin[i] == features.pairs.begin[i + 1]) continue;
    const auto number = model.find_attribute(training.attributes->name(i));
    if (!number) continue;
    const auto first = model.pair().begin() + model.pair_begin()[*number],
               last = model.pair().begin() + model.pair_begin()[*number + 1];
    for (std::int64_t f = features.pairs.begin[i]; f < features.pairs.begin[i + 1]; ++f) {
      const auto from = theirs[features.pairs.label[f] / features.K], to = theirs[features.pairs.label[f] % features.K];
      if (!from || !to) continue;
      const auto sought = static_cast<std::int32_t>(*from * model.labels().size() + *to);
      const auto at = std::lower_bound(first, last, sought);
      if (at == last || *at != sought) continue;
      w[features.first_pair() + f] = model.pair_weight()[static_cast<std::size_t>(at - model.pair().begin())];
      ++taken;
    }
  }
  return taken;
}

}  // namespace

std::int64_t take_over(const Model& model, const Training& training, const Features& features, std::span<double> w) {
  std::vector<std::optional<Label>> theirs;  // [K] what the model calls each label
  for (const std::string& name : training.labels.names()) theirs.push_back(model.labels().find(name));
  std::int64_t taken = 0;
  for (std::int32_t i = 0; i < features.attributes(); ++i) {
    if (features.begin[i] == features.begin[i + 1]) continue;
    const auto number = model.find_attribute(training.attributes->name(i));
    if (!number) continue;
    const auto first = model.label().begin() + model.begin()[*number],
               last = model.label().begin() + model.begin()[*number + 1];
    for (std::int64_t f = features.begin[i]; f < features.begin[i + 1]; ++f) {
      const std::optional<Label>& label = theirs[features.label[f]];
      const auto at = label ? std::lower_bound(first, last, *label) : last;
      if (at == last || *at != *label) continue;
      w[f] = model.weight()[static_cast<std::size_t>(at - model.label().begin())];
      ++taken;
    }
  }
  taken += take_over_pairs(model, training, features, theirs, w);
  for (std::size_t b = 0; b < features.bigram.size(); ++b) {
    const auto from = theirs[features.bigram[b] / features.K], to = theirs[features.bigram[b] % features.K];
    if (!from || !to) continue;
    w[features.label.size() + b] = model.transitions()[static_cast<std::size_t>(*from) * model.labels().size() + *to];
    ++taken;
  }
  return taken;
}

std::vector<double> transitions_of(const Features& features, std::span<const double> w) {
  std::vector<double> g(static_cast<std::size_t>(features.K) * features.K, 0);
  for (std::size_t i = 0; i < features.bigram.size(); ++i) g[features.bigram[i]] = w[features.label.size() + i];
  return g;
}

namespace {

// Adds what attributes say of the positions first … last - 1, whose attributes may be ones without weights.
void add_emissions(const Columns& features, const double* w, const Dataset& data, std::int64_t first, std::int64_t last,
                   std::span<double> out) {
  for (std::int64_t t = first; t < last; ++t) {
    double* h = out.data() + (t - first) * features.K;
    for (std::int64_t k = data.item[t]; k < data.item[t + 1]; ++k) {
      const std::int32_t i = data.attribute[k];
      if (i >= features.attributes()) continue;
      const double value = data.value.empty() ? 1 : static_cast<double>(data.value[k]);
      for (std::int64_t f = features.begin[i]; f < features.begin[i + 1]; ++f) h[features.label[f]] += value * w[f];
    }
  }
}

}  // namespace

void emissions_of(const Features& features, std::span<const double> w, const Dataset& data, std::int64_t first,
                  std::int64_t last, std::span<double> out) {
  if (!features.has_pairs()) {
    std::fill(out.begin(), out.end(), 0.0);
    return add_emissions(features, w.data(), data, first, last, out);
  }
  std::vector<double> h(static_cast<std::size_t>((last - first) * features.K), 0);
  add_emissions(features, w.data(), data, first, last, h);
  mark_emissions(features.K, h, transitions_of(features, w), out);
  add_emissions(features.pairs, w.data() + features.first_pair(), data, first, last, out);
}

std::vector<Label> decode(const Features& features, std::span<const double> w, const Dataset& data,
                          const Constraint& constraint, int threads, const Stop& stop) {
  std::vector<double> transitions;
  if (!features.has_pairs()) transitions = transitions_of(features, w);
  std::vector<Label> predicted;
  predicted.reserve(static_cast<std::size_t>(data.positions()));
  std::vector<double> h;
  std::vector<std::int64_t> first, length;
  Workspace workspace;
  Options options;
  options.threads = threads;
  options.workspace = &workspace;
  options.impossible = Impossible::allow;
  const std::int64_t rows = kDecodeCells / features.width();
  for (std::int64_t i = 0; i < data.sequences();) {
    stop_if_asked(stop);
    const std::int64_t begin = data.position[i];
    first.clear();
    length.clear();
    for (; i < data.sequences() && (first.empty() || data.position[i + 1] - begin <= rows); ++i) {
      first.push_back(data.position[i] - begin);
      length.push_back(data.position[i + 1] - data.position[i]);
    }
    const std::int64_t end = data.position[i];
    h.resize(static_cast<std::size_t>(end - begin) * features.width());
    emissions_of(features, w, data, begin, end, h);
    const Scores<double> scores =
        Scores<double>(h, transitions, Layout::ragged(first, length)).with_labels(features.width());
    // A language may have no sequence of some length; such a sequence gets no labels.
    const std::vector<Path> paths = viterbi(constraint, scores, options);
    for (std::size_t j = 0; j < paths.size(); ++j) {
      for (const Label a : paths[j].labels) predicted.push_back(a % features.K);  // without its mark
      predicted.resize(static_cast<std::size_t>(begin + first[j] + length[j]), kUnknownLabel);
    }
  }
  return predicted;
}

}  // namespace regccrf
