// Decoding under rules that are kept beside a base, on scores of a trained model:
//   bench_rules MODEL DATA LANGUAGE SCORES CHECKED
// SCORES: `model`, or `flat` for random numbers in their place. LANGUAGE: a file whose name ends in .lang, or a
// pattern. Times the language with its rules kept, multiplied out where that fits, and its base alone: CPU time of one
// thread, scores in double as `tag` has them, features not counted. Before that every answer is tested for membership,
// its score compared with the one of the language multiplied out, and the first CHECKED answers are found again by the
// best-first search. Prints a JSON object.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "regccrf/extract.h"
#include "regccrf/inference.h"
#include "regccrf/language.h"
#include "regccrf/model.h"
#include "regccrf/sentences.h"

namespace {

using namespace regccrf;
using Json = nlohmann::ordered_json;

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

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
    return {emissions, transitions,
            Layout::ragged(std::span(first).first(sentences), std::span(length).first(sentences))};
  }
  Scores<double> scores() const { return scores(first.size()); }
};

struct Contestant {
  const char* name;
  Constraint constraint;
  double seconds = 0;
};

Constraint compiled(const std::string& language, const Labels& labels, Rules rules) {
  const bool is_file = language.ends_with(".lang");
  const Limits limits{.seconds = 30};
  if (!is_file) return compile(Language::parse(language, labels), limits, rules);
  return fit_constraint(compile(Language::load(language), limits, rules), labels);
}

std::optional<Constraint> multiplied_out(const std::string& language, const Labels& labels) {
  try {
    Constraint constraint = compiled(language, labels, Rules::automatic);
    if (constraint.rules() == 0) return constraint;
  } catch (const LimitError&) {
  }
  return std::nullopt;
}

bool near(double x, double y) { return std::abs(x - y) <= 1e-9 * std::max(1.0, std::abs(x)); }

// Compares with the other ways; the number of answers that the base alone gets wrong.
std::int64_t check(const Input& input, const std::vector<Contestant>& all, std::int64_t searched) {
  const Constraint& kept = all[1].constraint;
  const std::vector<Path> paths = viterbi(kept, input.scores()), base = viterbi(all[0].constraint, input.scores());
  std::int64_t illegal = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!kept.accepts(paths[i].labels).accepted) throw Error("an answer breaks a rule");
    illegal += !kept.accepts(base[i].labels).accepted;
  }
  const auto compare = [&](const std::vector<Path>& others, const char* way) {
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (!near(paths[i].score, others[i].score)) throw Error(std::string("another score is found ") + way);
    }
  };
  if (all.size() > 2) compare(viterbi(all[2].constraint, input.scores()), "multiplied out");
  Options search;
  search.rules.products = 0;  // no product fits
  compare(viterbi(kept, input.scores(std::min(paths.size(), static_cast<std::size_t>(searched))), search), "by search");
  return illegal;
}

// The mean of as many runs as fill a fifth of a second: a clock of CPU time may be coarse.
double mean_seconds(const Input& input, const Constraint& constraint, Workspace& workspace) {
  const double start = cpu_seconds();
  for (int runs = 1;; ++runs) {
    viterbi(constraint, input.scores(), {.workspace = &workspace});
    const double seconds = cpu_seconds() - start;
    if (seconds >= 0.2) return seconds / runs;
  }
}

// The median of five rounds; one round for what takes half a second.
void time(const Input& input, std::vector<Contestant>& all) {
  Workspace workspace;
  for (Contestant& one : all) {
    std::vector<double> rounds;
    while (rounds.size() < 5 && (rounds.empty() || rounds[0] < 0.5))
      rounds.push_back(mean_seconds(input, one.constraint, workspace));
    std::sort(rounds.begin(), rounds.end());
    one.seconds = rounds[rounds.size() / 2];
  }
}

Json measure(const std::string& model, const std::string& data, const std::string& language, const std::string& scores,
             std::int64_t checked) {
  const Input input(model, data, scores == "flat");
  const Labels& labels = input.model.labels();
  const double start = cpu_seconds();
  const Constraint kept = compiled(language, labels, Rules::all);
  const double seconds = cpu_seconds() - start;
  std::vector<Contestant> all = {{"base", kept.base()}, {"kept", kept}};
  if (const auto multiplied = multiplied_out(language, labels)) all.push_back({"multiplied", *multiplied});
  const double first_start = cpu_seconds();
  viterbi(kept, input.scores());
  const double first_seconds = cpu_seconds() - first_start;  // no product is there yet
  const std::int64_t illegal = check(input, all, checked);
  time(input, all);
  Json result = {{"sequences", input.first.size()},
                 {"positions", input.emissions.size() / static_cast<std::size_t>(labels.size())},
                 {"labels", labels.size()},
                 {"rules", kept.rules()},
                 {"memories", kept.memories()},
                 {"scores", scores},
                 {"compile_seconds", seconds},
                 {"first_seconds", first_seconds},
                 {"illegal_under_base", illegal},
                 {"checked_by_search", std::min<std::int64_t>(checked, static_cast<std::int64_t>(input.first.size()))}};
  for (const Contestant& one : all) {
    result[one.name] = {{"products", one.constraint.size().products},
                        {"microseconds_a_position", 1e6 * one.seconds / result["positions"].get<double>()},
                        {"sequences_a_second", static_cast<double>(input.first.size()) / one.seconds}};
  }
  result["ratio"] = all[1].seconds / all[0].seconds;
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 6) {
    std::cerr << "usage: bench_rules MODEL DATA LANGUAGE model|flat CHECKED\n";
    return 2;
  }
  try {
    std::cout << measure(arguments[1], arguments[2], arguments[3], arguments[4], std::stoll(arguments[5])) << "\n";
  } catch (const regccrf::Error& error) {
    std::cout << Json{{"error", error.what()}} << "\n";
    return 1;
  }
}
