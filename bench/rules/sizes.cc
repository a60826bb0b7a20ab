// How large the automata are that sums under kept rules make, one for each sentence:
//   bench_rule_sizes MODEL DATA LANGUAGE MAX_GAP [SENTENCES]
// Prints a JSON object with an array for each quantity, a number a sentence: its length; its gap, null where it is not
// certified; live nodes and cells of all positions; the most rows at a position. Scores are the model's, in double.
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/rules/input.h"
#include "inference/rules/sums.h"

namespace {

using namespace regccrf;
using Json = nlohmann::ordered_json;

struct Sizes {
  std::vector<std::int64_t> length, live, cells, rows;  // [sentences]
  std::vector<double> gap;

  explicit Sizes(std::size_t sentences)
      : length(sentences),
        live(sentences),
        cells(sentences),
        rows(sentences),
        gap(sentences, std::numeric_limits<double>::infinity()) {}
};

Sizes sizes(const Constraint& constraint, const Scores<double>& scores, double max_gap, std::size_t sentences) {
  Options options;
  options.max_gap = max_gap;
  options.uncertified = Uncertified::bound;
  const Constraints constraints(constraint);
  const Batch<double> batch("sizes", constraints, scores, options, KeptRules::obeyed);
  Sums<double> sums(batch, max_gap);
  Sizes result(sentences);
  batch.each([&](const Sequence<double>& sequence, int, Arena& arena) {
    const auto i = static_cast<std::size_t>(sequence.index);
    result.length[i] = sequence.T;
    if (sequence.T == 0) return;
    sums.with_automaton(batch.constraint(sequence.index), sequence, arena, [&](auto& automaton, double, double gap) {
      result.gap[i] = gap;
      result.cells[i] = automaton.cells();
      result.rows[i] = automaton.most_rows();
      for (std::int64_t t = 0; t < sequence.T; ++t) {
        automaton.visit_nodes(t, [&](Label, double) { ++result.live[i]; });
      }
    });
  });
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5 && count != 6) {
    std::cerr << "usage: bench_rule_sizes MODEL DATA LANGUAGE MAX_GAP [SENTENCES]\n";
    return 2;
  }
  try {
    const Input input(arguments[1], arguments[2], false);
    const Constraint constraint = compiled(arguments[3], input.model.labels(), Rules::all);
    const std::size_t sentences =
        std::min<std::size_t>(input.first.size(), count == 6 ? std::stoull(arguments[5]) : input.first.size());
    const Sizes found = sizes(constraint, input.scores(sentences), std::stod(arguments[4]), sentences);
    Json gaps = Json::array();
    for (const double gap : found.gap) gaps.push_back(std::isinf(gap) ? Json() : Json(gap));
    std::cout << Json{{"rules", constraint.rules()}, {"memories", constraint.memories()},
                      {"length", found.length},      {"gap", gaps},
                      {"live", found.live},          {"rows", found.rows},
                      {"cells", found.cells}}
              << "\n";
  } catch (const regccrf::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
