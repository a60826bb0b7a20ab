#include "tagger/development.h"

namespace regccrf {
namespace {

constexpr const char* kUnknown = " ";  // no label is spelled so

}  // namespace

Labels with_others(const Labels& labels, const Names& of_gold) {
  std::vector<std::string> names = labels.names();
  for (std::int32_t i = 0; i < of_gold.size(); ++i) {
    if (!labels.find(of_gold.name(i))) names.emplace_back(of_gold.name(i));
  }
  return Labels(std::move(names));
}

DevelopmentScore::DevelopmentScore(const Dataset& data, const Labels& labels) : data_(data), labels_(labels) {
  gold_ = names(data.gold);
  options_.scheme = guess_scheme(gold_);
  options_.unknown = kUnknown;
  spans_ = evaluate(gold_, gold_, options_).total.spans.gold > 0;
}

double DevelopmentScore::operator()(std::span<const Label> predicted) const {
  const Evaluation evaluation = evaluate(gold_, names(predicted), options_);
  return spans_ ? evaluation.total.spans.f1() : evaluation.total.accuracy();
}

std::vector<double> DevelopmentScore::of_folds(std::span<const Label> predicted, int folds) const {
  const Evaluation evaluation = evaluate(gold_, names(predicted), options_);
  std::vector<Counts> counts(static_cast<std::size_t>(folds));
  for (std::size_t i = 0; i < evaluation.sequences.size(); ++i) counts[i % counts.size()] += evaluation.sequences[i];
  std::vector<double> scores;
  for (const Counts& fold : counts) scores.push_back(spans_ ? fold.spans.f1() : fold.accuracy());
  return scores;
}

std::vector<LabelNames> DevelopmentScore::names(std::span<const Label> labels) const {
  std::vector<LabelNames> result(static_cast<std::size_t>(data_.sequences()));
  for (std::int64_t i = 0; i < data_.sequences(); ++i) {
    for (std::int64_t t = data_.position[i]; t < data_.position[i + 1]; ++t)
      result[i].push_back(labels[t] == kUnknownLabel ? kUnknown : labels_.name(labels[t]));
  }
  return result;
}

}  // namespace regccrf
