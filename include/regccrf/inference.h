// Inference: exact questions about the distribution P(y | x, L) ∝ exp score(y) over the sequences y of a language L.
//
//   Constraint bio = compile(Language::parse("(O | B-PER I-PER*)*"));      // K = 3 labels: O, B-PER, I-PER
//   std::vector<float> h(4 * 3), g(3 * 3);                                 // [T, K], [K, K]: what a model says
//   Scores scores(h, g);
//   Path best = viterbi(bio, scores)[0];                                   // always in L
//   double probability = std::exp(best.score - log_z(bio, scores)[0]);
//
// The unconstrained CRF is Constraint::unconstrained(labels). Every function takes a ragged batch, in float or double,
// and gives one answer for each sequence, in order. Positions that are masked out are absent from inputs and answers.
//
// Edge cases. A sequence of length 0 is legal iff the language has the empty sequence, whose score is 0 (start and end
// scores belong to labels, and there are none). Where L has no sequence of some length, or every one of them has a
// score of −inf, log_z is −inf; everything that needs a legal sequence throws an Error, or leaves an empty answer with
// score −inf (zeros, for marginals) when Options say Impossible::allow.
//
// Accuracy: 1e-5 (float) or 1e-10 (double) times max(1, |value|) for log_z, scores and entropy, and the same, absolute,
// for marginals, for scores in [−1e4, 1e4] and T up to 100,000.
//
// Threads: Constraint is immutable and may be shared; so may the memory behind Scores. A Workspace serves one call at a
// time: give each calling thread its own. Functions keep no state of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/error.h"
#include "regccrf/scores.h"

namespace regccrf {

// How often inference had to leave its fastest arithmetic. Counts since the workspace was made.
struct Statistics {
  std::int64_t sequences = 0;     // passes over a sequence
  std::int64_t doubled = 0;       // of these, float scores that needed double's range or precision
  std::int64_t wide = 0;          // … and those that needed an exponent of its own for every number, float or double
  std::int64_t checkpointed = 0;  // kept only some of its steps in memory and computed the others twice
  double largest_gap = 0;         // of sums under rules that are kept beside a base
  std::int64_t uncertified = 0;   // … and how many of them are an upper bound alone
};

// Scratch memory and threads that calls may reuse. One call at a time.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

  Statistics statistics() const;

  struct Impl;
  Impl& impl() const { return *impl_; }  // for the library's own rooms

 private:
  std::unique_ptr<Impl> impl_;
};

// What to do with a sequence of which L has none with a finite score.
enum class Impossible { error, allow };

// How much work rules that are kept beside a base may cause for a sequence (constraint.h). Past it there is an Error of
// kind `limit` that says what was found.
struct RuleLimits {
  std::int64_t products = 300'000;  // of a time step, of the base times the rules that the sequence's paths break …
  std::int64_t cells = 4'000'000;   // … and of a best-first search; a sum's automaton may have a sixteenth …
  std::int64_t cells_a_position = 1'000'000;  // … and so many for each position
};

// What to do with a sum under such rules that is not certain to max_gap within these limits. The bound is the sum over
// the base's sequences, with its gradient. To relax is to allow a gap that is 10, 100 … times larger, and the bound
// where a gap of 1 is not enough.
enum class Uncertified { error, bound, relax };

struct Options {
  int threads = 1;                 // 0: as many as the machine has
  Workspace* workspace = nullptr;  // none: one is made for the call
  Impossible impossible = Impossible::error;
  std::size_t keep_bytes = std::size_t{1} << 28;  // per thread; past it a sequence is computed in O(√T) memory
  RuleLimits rules = {};
  // Sums under rules that are kept: log_z is within log(1 + gap) of the truth, and the distribution that marginals and
  // gradients are of within gap of it in total variation. None: 1e-3 for losses, 1e-4 for what is asked for directly.
  std::optional<double> max_gap = {};
  std::span<const double> max_gaps = {};  // [B], of each sequence, in the place of max_gap; or empty
  Uncertified uncertified = Uncertified::error;
  std::span<double> gaps = {};  // [B], or empty; gets each sequence's gap: 0 where a sum is exact, inf for a bound
};

struct Path {
  std::vector<Label> labels;
  double score = 0;  // summed in double
};

// log Σ_{y in L} exp score(y). [B]. O(nodes) memory, unless scores are so far apart that a pass backward has to tell
// what may be neglected. −inf is an answer here, never an error.
template <class Real>
std::vector<double> log_z(const Constraints& constraints, const Scores<Real>& scores, const Options& options = {});

// The best sequence of L. [B]
template <class Real>
std::vector<Path> viterbi(const Constraints& constraints, const Scores<Real>& scores, const Options& options = {});

// Its score alone, in O(nodes) memory; −inf where there is none. [B]
template <class Real>
std::vector<double> viterbi_score(const Constraints& constraints, const Scores<Real>& scores,
                                  const Options& options = {});

// The k best sequences of L, distinct, best first; fewer where L has fewer of finite score. [B][≤ k]
template <class Real>
std::vector<std::vector<Path>> k_best(const Constraints& constraints, const Scores<Real>& scores, int k,
                                      const Options& options = {});

// `count` independent sequences from P(y | x, L)^(1/temperature), normalised. [B][count]
// The random numbers depend on (seed, id, sample, position) alone, not on the batch or on threads. A sequence's id is
// its place in the batch unless `ids` gives another.
struct Sampling {
  int count = 1;
  std::uint64_t seed = 0;
  double temperature = 1;                   // > 0
  std::span<const std::uint64_t> ids = {};  // [B] or empty
};
template <class Real>
std::vector<std::vector<Path>> sample(const Constraints& constraints, const Scores<Real>& scores,
                                      const Sampling& sampling = {}, const Options& options = {});

// P(y_t = a). `out`: [rows, K] in the layout of the emissions; rows that belong to no present position are untouched.
template <class Real>
void label_marginals(const Constraints& constraints, const Scores<Real>& scores,
                     std::span<std::type_identity_t<Real>> out, const Options& options = {});

// P(y_t = a, y_{t+1} = b), at the row of t; zeros at a sequence's last position. `out`: [rows, K, K]
template <class Real>
void bigram_marginals(const Constraints& constraints, const Scores<Real>& scores,
                      std::span<std::type_identity_t<Real>> out, const Options& options = {});

// P(the path is in state q before it emits position t), states as in constraint.automaton(). `out`: [rows, Q], where Q
// is the largest number of states among the constraints.
template <class Real>
void state_marginals(const Constraints& constraints, const Scores<Real>& scores,
                     std::span<std::type_identity_t<Real>> out, const Options& options = {});

// A run of labels of one sequence, and what may not stand beside it: `B I` that no `I` follows is a span of BIO.
struct Span {
  std::int64_t sequence = 0;                           // in the batch
  std::int64_t begin = 0;                              // its first position, among those that are present
  std::vector<Label> labels;                           // at begin, begin + 1, …
  std::vector<Label> not_before = {}, not_after = {};  // satisfied at the ends of the sequence
};

// P(y_begin … = labels, y_{begin-1} is not in not_before, the label after is not in not_after) for each span, which may
// overlap. One pass for a sequence, and as much again for each position that spans cover. [spans]
template <class Real>
std::vector<double> span_marginals(const Constraints& constraints, const Scores<Real>& scores,
                                   std::span<const Span> spans, const Options& options = {});

// −Σ_y P(y) log P(y), in nats; a sum of local conditional entropies. [B]. With gradients: loss.h
template <class Real>
std::vector<double> entropy(const Constraints& constraints, const Scores<Real>& scores, const Options& options = {});

// The sequence of L, among those of finite score, with the largest sum of label marginals; that sum is its score. [B]
template <class Real>
std::vector<Path> posterior_decode(const Constraints& constraints, const Scores<Real>& scores,
                                   const Options& options = {});

// log P(L | x): how much of the unconstrained model's mass is legal. ≤ 0, −inf where L has no sequence. [B]
template <class Real>
std::vector<double> language_mass(const Constraints& constraints, const Scores<Real>& scores,
                                  const Options& options = {});

}  // namespace regccrf
