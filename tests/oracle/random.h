// Random automata and scores with fixed seeds. The automata are trimmed, not empty and unambiguous by construction:
// deterministic, co-deterministic, or a product of the two kinds.
#pragma once

#include <cstdint>
#include <random>

#include "regccrf/automaton.h"
#include "tests/oracle/scores.h"

namespace regccrf::oracle {

// Numbers that depend on the seed alone, not on the standard library's distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }  // 0 … n-1
  int between(int least, int most) { return least + below(most - least + 1); }
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }  // [0, 1)
  double uniform(double least, double most) { return least + (most - least) * uniform(); }
  double normal();
  bool chance(double probability) { return uniform() < probability; }

 private:
  std::mt19937_64 engine_;
};

enum class AutomatonKind { deterministic, co_deterministic, product };
inline constexpr AutomatonKind automaton_kinds[] = {AutomatonKind::deterministic, AutomatonKind::co_deterministic,
                                                    AutomatonKind::product};
Automaton random_automaton(Random& random, AutomatonKind kind, int labels, int most_states);

enum class ScoreKind {
  normal,  // N(0, 1)
  wide,    // uniform in [-1e4, 1e4]
  holes,   // N(0, 1), a fifth of the scores -inf
  ties,    // integers in [-1, 1]
  steep,   // N(0, s²), s between 1 and 1000, the same for all
  extreme  // each of a size of its own between 1 and 1e4, of either sign; a tenth of the scores -inf
};
inline constexpr ScoreKind score_kinds[] = {ScoreKind::normal, ScoreKind::wide, ScoreKind::holes, ScoreKind::ties,
                                            ScoreKind::steep};  // all but the last, which has tests of its own
// Every score is a float32 number, so that both precisions see the same input.
Scores random_scores(Random& random, ScoreKind kind, int length, int labels, bool with_ends);

// A language and scores in which whatever is legal has relative weight e^-depth a step, and the rest is lost only at
// the end, so that a pass which forgets small weights forgets all that is legal.
struct Forced {
  Automaton automaton;
  Scores scores;
};
// (A A)* | [B C]([B C][B C])*; length must be odd.
Forced forced_by_parity(Random& random, int length, double depth = 5000);
// A* D | [B C]* E, and D forbidden at the end.
Forced forced_by_end(Random& random, int length, double depth = 5000);
// (A B)* A?: one sequence of each length.
Forced forced_single(Random& random, int length, double depth = 5000);

}  // namespace regccrf::oracle
