// Which weights there are, and what they say about a data set (see features.h).
#include "train/features.h"

#include <algorithm>
#include <optional>

#include "regccrf/inference.h"

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
std::vector<Label> gold_by_attribute(const Dataset& data, const std::vector<std::int64_t>& begin) {
  std::vector<Label> labels(data.attribute.size());
  std::vector<std::int64_t> next(begin.begin(), begin.end() - 1);
  for (std::int64_t t = 0; t < data.positions(); ++t) {
    for (std::int64_t k = data.item[t]; k < data.item[t + 1]; ++k) labels[next[data.attribute[k]]++] = data.gold[t];
  }
  return labels;
}

void add_all_labels(Features& features) {
  for (Label a = 0; a < features.K; ++a) features.label.push_back(a);
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

// Where the weight of (attribute, label) stands; there may be none.
std::optional<std::int64_t> find_feature(const Features& features, std::int32_t attribute, Label label) {
  const auto first = features.label.begin() + features.begin[attribute];
  const auto last = features.label.begin() + features.begin[attribute + 1];
  const auto found = std::lower_bound(first, last, label);
  if (found == last || *found != label) return std::nullopt;
  return found - features.label.begin();
}

// [labels of attributes] the sum of each weight's values where gold has it.
std::vector<double> gold_frequencies(const Dataset& data, const Features& features) {
  std::vector<double> sum(features.label.size(), 0);
  for (std::int64_t i = 0; i < data.sequences(); ++i) {
    const double weight = data.weight.empty() ? 1 : data.weight[i];
    for (std::int64_t t = data.position[i]; t < data.position[i + 1]; ++t) {
      for (std::int64_t k = data.item[t]; k < data.item[t + 1]; ++k) {
        const double value = data.value.empty() ? 1 : static_cast<double>(data.value[k]);
        if (const auto f = find_feature(features, data.attribute[k], data.gold[t])) sum[*f] += weight * value;
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

void leave_out_rare(const Dataset& data, double least, Features& features) {
  const std::vector<double> bigram = bigram_frequencies(data, features.K), state = gold_frequencies(data, features);
  std::erase_if(features.bigram, [&](std::int32_t ab) { return bigram[ab] < least; });
  std::vector<Label> kept;
  std::int64_t f = 0;
  for (std::size_t i = 1; i < features.begin.size(); ++i) {
    for (; f < features.begin[i]; ++f) {
      if (state[f] >= least) kept.push_back(features.label[f]);
    }
    features.begin[i] = static_cast<std::int64_t>(kept.size());
  }
  features.label = std::move(kept);
}

}  // namespace

Features make_features(const Dataset& data, std::int32_t attributes, int K, const TrainOptions& options) {
  Features features;
  features.K = K;
  features.begin.reserve(static_cast<std::size_t>(attributes) + 1);
  const std::vector<std::int64_t> begin = count_attributes(data, attributes);
  std::vector<Label> labels;
  if (!options.all_features) labels = gold_by_attribute(data, begin);
  for (std::int32_t i = 0; i < attributes; ++i) {
    const bool kept = begin[i + 1] - begin[i] >= options.min_count;
    if (kept && options.all_features) {
      add_all_labels(features);
    } else if (kept) {
      const auto first = labels.begin() + begin[i], last = labels.begin() + begin[i + 1];
      std::sort(first, last);
      std::copy_if(first, std::unique(first, last), std::back_inserter(features.label),
                   [](Label a) { return a != kUnknownLabel; });
    }
    features.begin.push_back(static_cast<std::int64_t>(features.label.size()));
  }
  if (options.transitions) features.bigram = bigrams(data, K, options.all_transitions);
  if (options.min_frequency > 0) leave_out_rare(data, options.min_frequency, features);
  features.label.shrink_to_fit();
  return features;
}

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

void emissions_of(const Features& features, std::span<const double> w, const Dataset& data, std::int64_t first,
                  std::int64_t last, std::span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
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

std::vector<Label> decode(const Features& features, std::span<const double> w, const Dataset& data,
                          const Constraint& constraint, int threads, const Stop& stop) {
  const std::vector<double> transitions = transitions_of(features, w);
  std::vector<Label> predicted;
  predicted.reserve(static_cast<std::size_t>(data.positions()));
  std::vector<double> h;
  std::vector<std::int64_t> first, length;
  Workspace workspace;
  Options options;
  options.threads = threads;
  options.workspace = &workspace;
  options.impossible = Impossible::allow;
  const std::int64_t rows = kDecodeCells / features.K;
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
    h.resize(static_cast<std::size_t>(end - begin) * features.K);
    emissions_of(features, w, data, begin, end, h);
    const Scores scores(h, transitions, Layout::ragged(first, length));
    // A language may have no sequence of some length; such a sequence gets no labels.
    const std::vector<Path> paths = viterbi(constraint, scores, options);
    for (std::size_t j = 0; j < paths.size(); ++j) {
      predicted.insert(predicted.end(), paths[j].labels.begin(), paths[j].labels.end());
      predicted.resize(static_cast<std::size_t>(begin + first[j] + length[j]), kUnknownLabel);
    }
  }
  return predicted;
}

}  // namespace regccrf
