// The constrained CRF as a weighted transducer, for use with OpenFst (the paper's Appendix C).
//
// A sequence y_1 … y_T becomes the bigrams (y_1, y_2) … (y_{T-1}, y_T) (y_T, $), so that transition scores are weights
// of single arcs. Every legal sequence has exactly one path. Output symbols are the bigrams, written `B-PER|I-PER` and
// `I-PER|$`; input symbols are `x` (any input) or, for one input, its positions `x1`, `x2`, …. Weights are −score.
#pragma once

#include <string>

#include "regccrf/constraint.h"
#include "regccrf/scores.h"

namespace regccrf {

enum class Semiring { tropical, log, log64 };  // OpenFst's arc types standard, log, log64

// The topology, the same for every input: unweighted.
void write_bigram_fst(const Constraint& constraint, const std::string& path);

// For the one sequence in `scores`: its shortest distance is −log_z (log), its shortest path is Viterbi's (tropical).
template <class Real>
void write_scored_fst(const Constraint& constraint, const Scores<Real>& scores, Semiring semiring,
                      const std::string& path);

}  // namespace regccrf
