// Training on all folds but one, in turn (see cross_validation.h).
#include "train/cross_validation.h"

#include <algorithm>

#include "regccrf/error.h"
#include "regccrf/extract.h"
#include "regccrf/tagger.h"

namespace regccrf {
namespace {

constexpr std::int64_t kRows = 1 << 12;  // positions labelled at a time

std::vector<std::int64_t> sequences_of(const Dataset& data, int folds, int fold) {
  std::vector<std::int64_t> sequences;
  for (std::int64_t i = fold; i < data.sequences(); i += folds) sequences.push_back(i);
  return sequences;
}

void collect(const Dataset& data, const Names& attributes, std::int64_t sequence, Tagger& tagger) {
  for (std::int64_t t = data.position[sequence]; t < data.position[sequence + 1]; ++t) {
    for (std::int64_t k = data.item[t]; k < data.item[t + 1]; ++k)
      tagger.attribute(attributes.name(data.attribute[k]), data.value.empty() ? 1 : data.value[k]);
    tagger.next();
  }
  tagger.end();
}

// Labels of some sequences, put where they belong; what has no legal sequence stays unknown.
void label(const Training& training, const Model& model, std::span<const std::int64_t> sequences, int threads,
           std::vector<Label>& labels) {
  TagOptions options;
  options.threads = threads;
  options.no_sequence = NoSequence::empty;
  Tagger tagger(model, Extractor::attributes(), options);
  for (std::size_t begin = 0, end = 0; begin < sequences.size(); begin = end) {
    for (; end < sequences.size() && tagger.positions() < kRows; ++end)
      collect(*training.data, *training.attributes, sequences[end], tagger);
    const std::vector<Tagged>& tagged = tagger.decode();
    for (std::size_t i = begin; i < end; ++i) {
      if (tagged[i - begin].paths.empty()) continue;
      const std::vector<Label>& best = tagged[i - begin].paths[0].labels;
      std::copy(best.begin(), best.end(), labels.begin() + training.data->position[sequences[i]]);
    }
  }
}

}  // namespace

std::optional<std::vector<Label>> cross_predict(const Training& training, const TrainOptions& options, int folds,
                                                const std::function<void(int)>& on_fold, const Processes& processes) {
  const Dataset& data = *training.data;
  if (folds < 2 || folds > data.sequences()) {
    throw Error("[cross-validation] " + std::to_string(folds) + " folds of " + std::to_string(data.sequences()) +
                " sequences; 2 or more are needed, and no more than there are sequences");
  }
  std::vector<Label> labels(static_cast<std::size_t>(data.positions()), kUnknownLabel);
  for (int fold = 0; fold < folds; ++fold) {
    const std::vector<std::int64_t> held_out = sequences_of(data, folds, fold);
    const Dataset rest = without(data, held_out);
    Training part = training;
    part.data = &rest;
    part.development = nullptr;
    const Trained trained = train(part, options, {}, processes);
    if (trained.stopped == "asked to") return std::nullopt;
    label(training, trained.model, held_out, options.threads, labels);
    on_fold(fold + 1);
  }
  return labels;
}

}  // namespace regccrf
