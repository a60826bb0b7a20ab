// Sums: log_z and expected counts of one sequence, with rules that are kept beside a base and without. Without, they
// are exact (cpu/expectation.h). With rules they come from the sequence's own automaton A (sentence_automaton.h), with
// a certificate: where err is the price of A, and Z_A its mass,
//   gap = err / (Z_A − err),  |log Z_A − log Z_L| ≤ log(1 + gap),  and P_A is within gap of P_L in total variation.
//
// A is made within a budget that follows from the caller's max_gap. Where that is not enough, since little of the
// base's mass is legal, the budget follows the mass that was found; then the base is multiplied by the rules that its
// best path breaks; at last A is made without any loss. Limits are counts, so that an answer does not depend on the
// machine. A sequence past them is an error, or has the base's own sum, an upper bound, or a larger gap, at the
// caller's word.
#pragma once

#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "inference/batch.h"
#include "inference/cpu/expectation.h"
#include "inference/cpu/viterbi.h"
#include "inference/rules/chain.h"
#include "inference/rules/sentence_automaton.h"

namespace regccrf {

// Where the caller names none.
constexpr double kLossGap = 1e-3;   // losses and their gradients
constexpr double kAskedGap = 1e-4;  // what is asked for directly

struct CertifiedSum {
  double log_z;
  double gap = 0;  // inf where this is an upper bound
  bool certified() const { return gap < std::numeric_limits<double>::infinity(); }
};

template <class Real>
class Sums {
 public:
  Sums(const Batch<Real>& batch, double default_gap);
  ~Sums();

  CertifiedSum log_z(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena);
  // log_z and counts; where log_z is −inf the counts are zeros.
  CertifiedSum operator()(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena,
                          const Counts<Real>& counts);
  // Tells the caller of a sequence's gap.
  void note(const Sequence<Real>& sequence, double gap) const;

  // With rules kept alone, T ≥ 1: use(A, log_z of the base, gap), where there is a certificate. Impossible: there is no
  // legal sequence of finite score. Uncertified: the caller wants a bound.
  enum class Found { certified, impossible, uncertified };
  template <class Use>
  Found with_automaton(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena, const Use& use) {
    std::unique_ptr<Scratch> scratch = lend();
    const Found found = find(constraint, sequence, arena, *scratch);
    if (found == Found::certified) {
      scratch->automaton.backward();
      use(scratch->automaton, scratch->chain.log_z, scratch->gap);
    }
    give_back(std::move(scratch));
    return found;
  }

 private:
  struct Scratch {
    Chain chain;
    SentenceAutomaton automaton;
    double gap = 0;
  };
  // A constraint as sums see it; the base may have some of the rules multiplied in.
  struct Part {
    std::shared_ptr<const ChainMaker<Real>> maker;
    std::vector<int> which;  // rules that are not in it
  };
  Found find(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena, Scratch& scratch);
  Found find_within(double max_gap, const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena,
                    Scratch& scratch);
  Found try_part(double max_gap, const Constraint& constraint, const Part& part, const Sequence<Real>& sequence,
                 Arena& arena, Scratch& scratch, bool& settled);
  bool exact(const Constraint& constraint, const Part& part, const Sequence<Real>& sequence, Arena& arena,
             Scratch& scratch);
  Part part_of(const Constraint& constraint, const Constraint& base, std::vector<int> added);
  std::shared_ptr<const RulePairs> pairs_of(const Constraint& constraint);
  std::int64_t most_cells(const Sequence<Real>& sequence) const;
  double max_gap(const Sequence<Real>& sequence) const;
  [[noreturn]] void fail(const Sequence<Real>& sequence) const;
  std::unique_ptr<Scratch> lend();
  void give_back(std::unique_ptr<Scratch> scratch);

  const Batch<Real>& batch_;
  double max_gap_;
  Expectations<Real> expectations_;
  std::mutex mutex_;
  std::unique_ptr<BestPaths<Real>> best_;
  std::vector<std::shared_ptr<const ChainMaker<Real>>> makers_;
  std::vector<std::pair<const RuleTables*, std::shared_ptr<const RulePairs>>> pairs_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

extern template class Sums<float>;
extern template class Sums<double>;

}  // namespace regccrf
