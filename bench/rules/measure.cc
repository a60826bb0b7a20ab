// Decoding under rules that are kept beside a base, on scores of a trained model:
//   bench_rules MODEL DATA LANGUAGE SCORES CHECKED
// SCORES: `model`, or `flat` for random numbers in their place. LANGUAGE: a file whose name ends in .lang, or a
// pattern. Times the language with its rules kept, multiplied out where that fits, and its base alone: CPU time of one
// thread, scores in double as `tag` has them, features not counted. Before that every answer is tested for membership,
// its score compared with the one of the language multiplied out, and the first CHECKED answers are found again by the
// best-first search. Prints a JSON object.
//   bench_rules MODEL DATA LANGUAGE losses MAX_GAP
// The same for log_z with its gradients, which is the work of a loss, at a gap. Before that every gap is compared with
// MAX_GAP, and log_z with the one of the language multiplied out, where that fits, to the certificate.
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
#include "regccrf/loss.h"
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
    const Layout layout = Layout::ragged(std::span(first).first(sentences), std::span(length).first(sentences));
    return {emissions, transitions, layout};
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

constexpr std::size_t kMostSequences = 400;  // of a table of losses

struct LossRun {
  const Input& input;
  std::size_t sequences;
  Workspace workspace = {};
  std::vector<double> gaps, dh, dg;

  std::vector<double> operator()(const Constraint& constraint, double max_gap) {
    Options options;
    options.workspace = &workspace;
    options.max_gap = max_gap;
    options.uncertified = Uncertified::bound;
    gaps.assign(sequences, 0);
    options.gaps = gaps;
    dh.resize(input.emissions.size());
    dg.resize(input.transitions.size());
    Gradients<double> gradients;
    gradients.emissions = dh;
    gradients.transitions = dg;
    return log_z(constraint, input.scores(sequences), gradients, options).values;
  }
};

double seconds_of(LossRun& run, const Constraint& constraint, double max_gap) {
  const double start = cpu_seconds();
  for (int runs = 1;; ++runs) {
    run(constraint, max_gap);
    const double seconds = cpu_seconds() - start;
    if (seconds >= 0.2) return seconds / runs;
  }
}

Json losses(const std::string& model, const std::string& data, const std::string& language, double max_gap) {
  const Input input(model, data, false);
  const Labels& labels = input.model.labels();
  const Constraint kept = compiled(language, labels, Rules::all);
  LossRun run{input, std::min(input.first.size(), kMostSequences)};
  const std::vector<double> values = run(kept, max_gap);
  std::vector<double> gaps = run.gaps;
  const auto multiplied = multiplied_out(language, labels);
  const std::vector<double> exact = multiplied ? run(*multiplied, max_gap) : std::vector<double>();
  std::int64_t uncertified = 0;
  for (std::size_t i = 0; i < gaps.size(); ++i) {
    uncertified += std::isinf(gaps[i]);
    if (std::isinf(gaps[i])) continue;
    if (gaps[i] > max_gap) throw Error("a gap is larger than asked for");
    if (multiplied && std::abs(values[i] - exact[i]) > std::log1p(gaps[i]) + 1e-9 * std::abs(exact[i]))
      throw Error("a certificate does not hold");
  }
  std::sort(gaps.begin(), gaps.end());
  const double base = seconds_of(run, kept.base(), max_gap), rules = seconds_of(run, kept, max_gap);
  Json result = {
      {"sequences", run.sequences}, {"rules", kept.rules()},      {"max_gap", max_gap},
      {"ratio", rules / base},      {"uncertified", uncertified}, {"median_gap", gaps[gaps.size() / 2]},
      {"base_seconds", base},       {"kept_seconds", rules},      {"checked_exactly", multiplied.has_value()}};
  if (multiplied) result["multiplied_seconds"] = seconds_of(run, *multiplied, max_gap);
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 6) {
    std::cerr << "usage: bench_rules MODEL DATA LANGUAGE model|flat CHECKED, or … losses MAX_GAP\n";
    return 2;
  }
  try {
    const bool of_losses = std::string(arguments[4]) == "losses";
    if (of_losses) std::cout << losses(arguments[1], arguments[2], arguments[3], std::stod(arguments[5])) << "\n";
    if (of_losses) return 0;
    std::cout << measure(arguments[1], arguments[2], arguments[3], arguments[4], std::stoll(arguments[5])) << "\n";
  } catch (const regccrf::Error& error) {
    std::cout << Json{{"error", error.what()}} << "\n";
    return 1;
  }
}
