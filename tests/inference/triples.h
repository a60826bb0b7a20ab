// Random small languages with scores and a length: what every device's inference is compared with enumeration on.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "regccrf/constraint.h"
#include "tests/inference/inference_fixture.h"
#include "tests/oracle/automata.h"
#include "tests/oracle/enumerate.h"
#include "tests/oracle/random.h"

namespace regccrf {

struct Triple {
  Automaton automaton;
  oracle::Scores scores;
  Constraint constraint;
  std::string name;
};

inline Automaton random_language(oracle::Random& random, int index, int labels) {
  if (index % 20 == 19) return oracle::everything(labels);
  return oracle::random_automaton(random, oracle::automaton_kinds[index % 3], labels, 8);
}

inline bool has_length(const Automaton& automaton, int length, int labels) {
  const oracle::Scores zeros{length,
                             labels,
                             std::vector<double>(static_cast<std::size_t>(length * labels), 0),
                             std::vector<double>(static_cast<std::size_t>(labels * labels), 0),
                             {},
                             {}};
  return !oracle::Enumeration(automaton, zeros).paths().empty();
}

// Mostly a length that the language has.
inline int random_length(oracle::Random& random, const Automaton& automaton, int labels) {
  const int longest[] = {0, 9, 8, 6, 5};
  int length = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    length = random.between(0, longest[labels]);
    if (has_length(automaton, length, labels)) break;
  }
  return length;
}

inline Triple triple(int index) {
  oracle::Random random(static_cast<std::uint64_t>(index) + 1000);
  const int label_counts[] = {1, 2, 2, 3, 3, 3, 4, 4};
  const int labels = label_counts[random.below(8)];
  Automaton automaton = random_language(random, index, labels);
  const int length = random_length(random, automaton, labels);
  const oracle::ScoreKind kind = oracle::score_kinds[random.below(5)];
  oracle::Scores scores = oracle::random_scores(random, kind, length, labels, random.chance(0.5));
  // Half of the constraints have more nodes than they need: few nodes have passes of their own.
  const Automaton larger = oracle::trim(oracle::product(automaton, oracle::ring(2 + 64 / automaton.states(), labels)));
  const bool enlarged = index / 3 % 2 == 1 && !larger.arcs.empty();
  Constraint constraint = Constraint::from_automaton(enlarged ? larger : automaton, numbered_labels(labels));
  std::string name = "triple " + std::to_string(index) + ": K = " + std::to_string(labels) +
                     ", T = " + std::to_string(length) + ", scores of kind " + std::to_string(static_cast<int>(kind));
  return {std::move(automaton), std::move(scores), std::move(constraint), std::move(name)};
}

inline bool is_member(const Triple& x, const std::vector<Label>& labels) {
  return static_cast<int>(labels.size()) == x.scores.length && oracle::count_paths(x.automaton, labels) == 1;
}

// Paths are the k best: legal, distinct, in order, with their own scores.
inline void expect_k_best(const Triple& x, const std::vector<oracle::Path>& expected, const std::vector<Path>& found,
                          double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  std::set<std::vector<Label>> distinct;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(is_member(x, found[i].labels));
    EXPECT_TRUE(i == 0 || found[i].score <= found[i - 1].score);
    expect_value(expected[i].score, found[i].score, tolerance, "score " + std::to_string(i));
    expect_value(oracle::score_of(x.scores, found[i].labels), found[i].score, 1e-12, "the path's own score");
    distinct.insert(found[i].labels);
  }
  EXPECT_EQ(distinct.size(), found.size());
}

}  // namespace regccrf
