// Decoding under rules that are kept beside a base, on scores of a trained model:
//   bench_rules MODEL DATA LANGUAGE SCORES CHECKED
// SCORES: `model`, or `flat` for random numbers in their place. LANGUAGE: a file whose name ends in .lang, or a
// pattern. Times the language with its rules kept, multiplied out where that fits, and its base alone: CPU time of one
// thread, scores in double as `tag` has them, features not counted. Before that every answer is tested for membership,
// its score compared with the one of the language multiplied out, and the first CHECKED answers are found again by the
// best-first search. Prints a JSON object.
//   bench_rules MODEL DATA LANGUAGE losses MAX_GAP
// The same for log_z with its gradients, which is the work of a loss, at a gap. Before that every gap is compared with
// MAX_GAP, and log_z and gradients with those of the language multiplied out, or where that does not fit with those at
// a tenth of the gap, to the certificates.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/rules/input.h"
#include "regccrf/inference.h"
#include "regccrf/loss.h"

namespace {

using namespace regccrf;
using Json = nlohmann::ordered_json;

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Contestant {
  const char* name;
  Constraint constraint;
  double seconds = 0;
};

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

// Two answers to the same question, each with a certificate of its own, must be as near as these say. The gradients
// are compared too where both are of the whole batch.
struct Answer {
  std::vector<double> values, gaps, dh;
};

Answer answer(LossRun& run, const Constraint& constraint, double max_gap) {
  std::vector<double> values = run(constraint, max_gap);
  return {std::move(values), run.gaps, run.dh};
}

void compare(const Input& input, const Answer& one, const Answer& other) {
  const auto K = static_cast<std::size_t>(input.model.labels().size());
  for (std::size_t i = 0; i < one.values.size(); ++i) {
    const double gap = one.gaps[i] + other.gaps[i] + one.gaps[i] * other.gaps[i];
    if (std::isinf(gap)) continue;
    if (std::abs(one.values[i] - other.values[i]) > std::log1p(gap) + 1e-9 * std::abs(one.values[i]))
      throw Error("a certificate does not hold for a loss");
    const auto first = static_cast<std::size_t>(input.first[i]) * K;
    for (std::size_t j = first; j < first + static_cast<std::size_t>(input.length[i]) * K; ++j)
      if (std::abs(one.dh[j] - other.dh[j]) > gap + 1e-9) throw Error("a certificate does not hold for a gradient");
  }
}

// The mean over positions of the likeliest label's probability under the base.
double sureness(const Input& input, const Answer& base) {
  const std::int64_t K = input.model.labels().size();
  double sum = 0, positions = 0;
  for (std::size_t i = 0; i < base.values.size(); ++i) {
    for (std::int64_t t = input.first[i]; t < input.first[i] + input.length[i]; ++t, ++positions)
      sum += *std::max_element(base.dh.begin() + t * K, base.dh.begin() + (t + 1) * K);
  }
  return sum / positions;
}

Json losses(const std::string& model, const std::string& data, const std::string& language, double max_gap) {
  const Input input(model, data, false);
  const Labels& labels = input.model.labels();
  const Constraint kept = compiled(language, labels, Rules::all);
  LossRun run{input, std::min(input.first.size(), kMostSequences)};
  Answer certified = answer(run, kept, max_gap);
  const auto multiplied = multiplied_out(language, labels);
  // What cannot be multiplied out is compared with itself at a tenth of the gap, which is another automaton.
  compare(input, certified, multiplied ? answer(run, *multiplied, max_gap) : answer(run, kept, max_gap / 10));
  std::vector<double> gaps = certified.gaps;
  std::sort(gaps.begin(), gaps.end());
  const auto uncertified = std::count_if(gaps.begin(), gaps.end(), [](double gap) { return std::isinf(gap); });
  for (const double gap : gaps)
    if (gap > max_gap && !std::isinf(gap)) throw Error("a gap is larger than asked for");
  const double base = seconds_of(run, kept.base(), max_gap), rules = seconds_of(run, kept, max_gap);
  const double median = gaps[gaps.size() / 2];
  Json result = {{"sequences", run.sequences},
                 {"labels", labels.size()},
                 {"rules", kept.rules()},
                 {"sureness", sureness(input, answer(run, kept.base(), max_gap))},
                 {"max_gap", max_gap},
                 {"ratio", rules / base},
                 {"uncertified", uncertified},
                 {"median_gap", std::isinf(median) ? Json() : Json(median)},
                 {"base_seconds", base},
                 {"kept_seconds", rules},
                 {"checked_exactly", multiplied.has_value()}};
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
