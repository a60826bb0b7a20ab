// Inference: exact answers about the distribution P(y | x, L) ∝ exp score(y) over the sequences y of a language L.
//
//   Constraint bio = compile(Language::parse("(O | B-PER I-PER*)*"));      // K = 3 labels: O, B-PER, I-PER
//   std::vector<float> h(4 * 3), g(3 * 3);                                 // [T, K], [K, K]: a model's scores
//   Scores scores(h, g);
//   Path best = viterbi(bio, scores)[0];                                   // always in L
//   double probability = std::exp(best.score - log_z(bio, scores)[0]);
//
// The unconstrained CRF is Constraint::unconstrained(labels). Every function takes a ragged batch, in float or double,
// and gives one answer for each sequence, in order. Masked positions are absent from inputs and answers.
//
// Edge cases. A sequence of length 0 is legal if the language has the empty sequence, whose score is 0 (start and end
// scores belong to labels, and there are none). If L has no sequence of some length, or all of them have a score of
// −inf, log_z is −inf. Everything that needs a legal sequence then throws an Error. With Impossible::allow it gives an
// empty answer with score −inf (zeros, for marginals) instead.
//
// Accuracy: 1e-5 (float) or 1e-10 (double) times max(1, |value|) for log_z, scores and entropy, and the same, absolute,
// for marginals, for scores in [−1e4, 1e4] and T up to 100,000.
//
// Threads: Constraint is immutable and may be shared; so may the memory behind Scores. A Workspace serves one call at a
// time: give each calling thread its own. There is no global state.
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

// How often the fastest arithmetic was not enough. Counted since the workspace was made.
struct Statistics {
  std::int64_t sequences = 0;     // passes over a sequence
  std::int64_t doubled = 0;       // of these, float scores that needed double's range or precision
  std::int64_t wide = 0;          // … and those in which every number needed its own 64-bit exponent
  std::int64_t checkpointed = 0;  // of these, with only some steps in memory and the others computed twice
  double largest_gap = 0;         // of sums under kept rules
  std::int64_t uncertified = 0;   // … and how many of them are only an upper bound
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
  Impl& impl() const { return *impl_; }  // internal

 private:
  std::unique_ptr<Impl> impl_;
};

// What to do if L has no sequence of the length with a finite score.
enum class Impossible { error, allow };

// Limits of the work for one sequence under kept rules (constraint.h). If one is exceeded, an Error of kind `limit`
// says what was found.
struct RuleLimits {
  std::int64_t products = 300'000;  // decoding: of a time step, of the base times the rules that are broken
  std::int64_t cells = 4'000'000;   // of a best-first search; a sixteenth of it for the automaton of a sum …
  std::int64_t cells_a_position = 1'000'000;  // … which may also have at most this many for each position
};

// What to do if a sum under kept rules has a gap above max_gap within these limits. bound: take the sum over the
// sequences of the base, an upper bound, with its gradient. relax: allow a gap that is 10, 100, … times larger, and
// take the bound if a gap of 1 is not enough.
enum class Uncertified { error, bound, relax };

struct Options {
  int threads = 1;                 // 0: as many as the machine has
  Workspace* workspace = nullptr;  // none: one is made for the call
  Impossible impossible = Impossible::error;
  std::size_t keep_bytes = std::size_t{1} << 28;  // per thread; longer sequences are computed in O(√T) memory
  RuleLimits rules = {};
  // The largest gap of a sum under kept rules. log_z is off by at most log(1 + gap), and the distribution of marginals
  // and gradients by at most gap in total variation. Default: 1e-3 for losses, 1e-4 for everything else.
  std::optional<double> max_gap = {};
  std::span<const double> max_gaps = {};  // [B], one for each sequence, instead of max_gap; or empty
  Uncertified uncertified = Uncertified::error;
  std::span<double> gaps = {};  // [B], or empty; receives the gaps: 0 if a sum is exact, inf if it is a bound
};

struct Path {
  std::vector<Label> labels;
  double score = 0;  // summed in double
};

// log Σ_{y in L} exp score(y). [B]. Takes O(nodes) memory, unless the range of the scores is so large that a backward
// pass is needed. If L has no sequence of a length, the answer is −inf, and not an error.
template <class Real>
std::vector<double> log_z(const Constraints& constraints, const Scores<Real>& scores, const Options& options = {});

// The best sequence of L. [B]
template <class Real>
std::vector<Path> viterbi(const Constraints& constraints, const Scores<Real>& scores, const Options& options = {});

// Only its score, in O(nodes) memory; −inf if there is none. [B]
template <class Real>
std::vector<double> viterbi_score(const Constraints& constraints, const Scores<Real>& scores,
                                  const Options& options = {});

// The k best sequences of L, distinct, best first; fewer if L has fewer with a finite score. [B][≤ k]
template <class Real>
std::vector<std::vector<Path>> k_best(const Constraints& constraints, const Scores<Real>& scores, int k,
                                      const Options& options = {});

// `count` independent sequences from P(y | x, L)^(1/temperature), normalised. [B][count]
// The random numbers depend on (seed, id, sample, position) alone, not on the batch or on threads. A sequence's id is
// its place in the batch unless `ids` gives another.
struct Sampling {
  int count = 1;
  std::uint64_t seed = 0;
  double temperature = 1;                   // > 0; under kept rules 1e-6 or more
  std::span<const std::uint64_t> ids = {};  // [B] or empty
};
template <class Real>
std::vector<std::vector<Path>> sample(const Constraints& constraints, const Scores<Real>& scores,
                                      const Sampling& sampling = {}, const Options& options = {});

// P(y_t = a). `out`: [rows, K] in the layout of the emissions; rows of masked positions are not changed.
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

// Labels at consecutive positions of a sequence, and labels that may not be next to them: in BIO a span is `B I`
// without an `I` after it.
struct Span {
  std::int64_t sequence = 0;                           // in the batch
  std::int64_t begin = 0;                              // its first position; masked positions do not count
  std::vector<Label> labels;                           // at begin, begin + 1, …
  std::vector<Label> not_before = {}, not_after = {};  // satisfied at the ends of the sequence
};

// P(y_begin … = labels, y_{begin-1} is not in not_before, the label after is not in not_after) for each span. Spans may
// overlap. The cost is one pass over the sequence, and as much again for each position that spans cover. [spans]
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

// log P(L | x): the probability of all legal sequences without the constraint. ≤ 0; −inf if L has no sequence. [B]
template <class Real>
std::vector<double> language_mass(const Constraints& constraints, const Scores<Real>& scores,
                                  const Options& options = {});

}  // namespace regccrf
