// What the benchmarks of rules measure on: the scores that a trained model gives to the sentences of a file, and a
// language compiled for the model's labels.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "regccrf/extract.h"
#include "regccrf/language.h"
#include "regccrf/model.h"
#include "regccrf/scores.h"
#include "regccrf/sentences.h"

namespace regccrf {

// Emissions of every sentence of a file.
struct Input {
  Model model;
  std::vector<double> emissions, transitions;  // [rows, K], [K, K]
  std::vector<std::int64_t> first, length;     // [sentences]

  Input(const std::string& model_path, const std::string& data_path, bool flat)
      : model(Model::load(model_path)), transitions(model.transitions().begin(), model.transitions().end()) {
    Names attributes, labels;
    for (std::int32_t i = 0; i < model.attributes(); ++i) attributes.add(model.attribute(i));
    const Extractor extractor = Extractor::from_text(model.extractor());
    const Dataset data = read_dataset({data_path}, extractor.format(), extractor, attributes, labels, {.grow = false});
    emissions.resize(static_cast<std::size_t>(data.positions() * model.labels().size()));
    regccrf::emissions<double>(model, data, 0, data.positions(), emissions);
    if (flat) {
      std::mt19937_64 random(1);
      std::normal_distribution<double> normal;
      for (double& h : emissions) h = normal(random);
      for (double& g : transitions) g = normal(random);
    }
    for (std::int64_t i = 0; i < data.sequences(); ++i) {
      first.push_back(data.position[static_cast<std::size_t>(i)]);
      length.push_back(data.length(i));
    }
  }

  Scores<double> scores(std::size_t sentences) const {
    const Layout layout = Layout::ragged(std::span(first).first(sentences), std::span(length).first(sentences));
    return {emissions, transitions, layout};
  }
  Scores<double> scores() const { return scores(first.size()); }
};

// LANGUAGE: a file whose name ends in .lang, or a pattern.
inline Constraint compiled(const std::string& language, const Labels& labels, Rules rules) {
  const bool is_file = language.ends_with(".lang");
  const Limits limits{.seconds = 30};
  if (!is_file) return compile(Language::parse(language, labels), limits, rules);
  return fit_constraint(compile(Language::load(language), limits, rules), labels);
}

}  // namespace regccrf
