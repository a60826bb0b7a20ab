#include "tests/oracle/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>

#include "tests/oracle/automata.h"

namespace regccrf::oracle {

namespace {

Automaton random_dfa(Random& random, int labels, int most_states) {
  Automaton automaton;
  const int states = random.between(1, most_states);
  const double density = random.uniform(0.3, 1.0), accepts = random.uniform(0.2, 1.0);
  automaton.start = random.below(states);
  for (State q = 0; q < states; ++q) {
    automaton.accepting.push_back(random.chance(accepts));
    for (Label a = 0; a < labels; ++a) {
      if (random.chance(density)) automaton.arcs.push_back({q, a, random.below(states)});
    }
  }
  return automaton;
}

Automaton random_untrimmed(Random& random, AutomatonKind kind, int labels, int most_states) {
  if (kind == AutomatonKind::deterministic) return random_dfa(random, labels, most_states);
  if (kind == AutomatonKind::co_deterministic) return reverse(random_dfa(random, labels, most_states));
  const int most = std::max(2, most_states / 2 + 1);
  const Automaton left = random_dfa(random, labels, most);
  return product(left, reverse(random_dfa(random, labels, most)));
}

double random_score(Random& random, ScoreKind kind, double spread) {
  switch (kind) {
    case ScoreKind::normal:
      return random.normal();
    case ScoreKind::wide:
      return random.uniform(-1e4, 1e4);
    case ScoreKind::holes:
      return random.chance(0.2) ? -std::numeric_limits<double>::infinity() : random.normal();
    case ScoreKind::ties:
      return random.between(-1, 1);
    case ScoreKind::steep:
      return spread * random.normal();
    case ScoreKind::extreme:
      if (random.chance(0.1)) return -std::numeric_limits<double>::infinity();
      return std::pow(10, random.uniform(0, 4)) * (random.chance(0.5) ? 1 : -1);
  }
  throw std::logic_error("no such kind of scores");
}

void fill(std::vector<double>& scores, std::size_t size, Random& random, ScoreKind kind, double spread) {
  scores.resize(size);
  for (double& score : scores) score = static_cast<float>(random_score(random, kind, spread));
}

// `label` weighs e^-depth against the others at every position.
void depress(Scores& scores, Label label, double depth) {
  for (int t = 0; t < scores.length; ++t) {
    double& score = scores.emissions[static_cast<std::size_t>(t) * scores.labels + label];
    score = static_cast<float>(score - depth);
  }
}

}  // namespace

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

Automaton random_automaton(Random& random, AutomatonKind kind, int labels, int most_states) {
  for (;;) {
    Automaton automaton = trim(random_untrimmed(random, kind, labels, most_states));
    const bool is_tiny = automaton.states() < std::min(3, most_states);
    if (!automaton.arcs.empty() && (!is_tiny || random.chance(0.2))) return automaton;
  }
}

Scores random_scores(Random& random, ScoreKind kind, int length, int labels, bool with_ends) {
  Scores scores;
  scores.length = length;
  scores.labels = labels;
  const std::size_t K = static_cast<std::size_t>(labels);
  const double spread = std::pow(10, random.uniform(0, 3));
  fill(scores.emissions, static_cast<std::size_t>(length) * K, random, kind, spread);
  fill(scores.transitions, K * K, random, kind, spread);
  if (with_ends) {
    fill(scores.start, K, random, kind, spread);
    fill(scores.end, K, random, kind, spread);
  }
  return scores;
}

Forced forced_by_parity(Random& random, int length, double depth) {
  Automaton automaton;
  automaton.accepting = {1, 0, 1, 1, 0};
  automaton.arcs = {{0, 0, 1}, {0, 1, 3}, {0, 2, 3}, {1, 0, 2}, {2, 0, 1}, {3, 1, 4}, {3, 2, 4}, {4, 1, 3}, {4, 2, 3}};
  Scores scores = random_scores(random, ScoreKind::normal, length, 3, true);
  depress(scores, 1, depth);
  depress(scores, 2, depth);
  return {automaton, scores};
}

Forced forced_by_end(Random& random, int length, double depth) {
  Automaton automaton;
  automaton.accepting = {0, 0, 0, 1};
  automaton.arcs = {{0, 0, 1}, {0, 1, 2}, {0, 2, 2}, {0, 3, 3}, {0, 4, 3},
                    {1, 0, 1}, {1, 3, 3}, {2, 1, 2}, {2, 2, 2}, {2, 4, 3}};
  Scores scores = random_scores(random, ScoreKind::normal, length, 5, true);
  depress(scores, 1, depth);
  depress(scores, 2, depth);
  scores.emissions[static_cast<std::size_t>(length - 1) * 5 + 3] = -std::numeric_limits<double>::infinity();
  return {automaton, scores};
}

Forced forced_single(Random& random, int length, double depth) {
  Automaton automaton;
  automaton.accepting = {1, 1};
  automaton.arcs = {{0, 0, 1}, {1, 1, 0}};
  Scores scores = random_scores(random, ScoreKind::normal, length, 3, true);
  depress(scores, 0, depth);
  depress(scores, 1, depth);
  return {automaton, scores};
}

}  // namespace regccrf::oracle
