// Batch: a call as the rooms behind the interface see it. Checks shapes and values once, hands out one sequence at a
// time, and spreads sequences over threads. Job functions must not leave the
// arena that they are given.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "constraint/topology.h"
#include "inference/errors.h"
#include "inference/workspace.h"
#include "regccrf/inference.h"
#include "regccrf/scores.h"

namespace regccrf {

// One sequence's emissions, masked positions left out.
template <class Real>
struct Sequence {
  std::int64_t index;  // in the batch
  std::int64_t T;
  int K;
  const Real* emissions;  // [rows, K]
  std::int64_t first, stride;
  const std::int64_t* rows;       // [T] where positions are masked, else null
  const Real* bounded = nullptr;  // [T, K] in the place of emissions of which some are too large, else null

  std::int64_t row(std::int64_t t) const { return rows ? rows[t] : first + t * stride; }
  const Real* at(std::int64_t t) const { return bounded ? bounded + t * K : emissions + row(t) * K; }
};

// What an operation does with a constraint that keeps rules beside its base: an error, unless it knows them.
enum class KeptRules { refused, obeyed };

template <class Real>
class Batch {
 public:
  // Error where shapes do not fit together, or where transitions, start or end hold NaN or +inf.
  Batch(const char* operation, const Constraints& constraints, const Scores<Real>& scores, const Options& options,
        KeptRules rules = KeptRules::refused);

  const char* operation() const { return operation_; }
  const Scores<Real>& scores() const { return scores_; }  // transitions, start and end bounded; emissions as they came
  const Options& options() const { return options_; }
  std::int64_t size() const { return size_; }  // B
  std::int64_t rows() const { return rows_; }
  int K() const { return scores_.labels; }
  Workspace::Impl& workspace() const { return *workspace_; }

  int constraints() const { return static_cast<int>(constraints_.all().size()); }
  int which(std::int64_t i) const { return constraints_.which().empty() ? 0 : constraints_.which()[i]; }
  const Constraint& constraint(std::int64_t i) const { return constraints_.all()[which(i)]; }
  const Constraint& constraint_number(int c) const { return constraints_.all()[c]; }
  bool keeps_rules() const;                   // some constraint of the call
  std::int64_t length(std::int64_t i) const;  // masked positions included

  Sequence<Real> sequence(std::int64_t i, Arena& arena) const;
  // Error that names the first NaN or +inf; else whether all scores are as large as they may be at most.
  bool check(const Sequence<Real>& sequence) const;

  // job(sequence, member, arena) for every sequence, checked, on up to options.threads threads. The error of the first
  // sequence that has one is thrown when all are done.
  using Job = std::function<void(const Sequence<Real>&, int, Arena&)>;
  void each(const Job& job) const;
  int members() const { return members_; }

  // Everything that needs a legal sequence calls this when log_z or the best score is −inf.
  // Throws unless Options allow the impossible.
  void impossible(const Sequence<Real>& sequence) const;

 private:
  void check_shapes();
  void check_layout();
  void check_padded(std::int64_t steps) const;
  void check_choice() const;  // of constraints
  void check_rules() const;
  void check_model();  // transitions, start and end, which are bounded too
  int members_worth_waking() const;

  const char* operation_;
  const Constraints& constraints_;
  Scores<Real> scores_;
  std::vector<Real> bounded_[3];  // transitions, start, end, of which some are too large
  const Options& options_;
  std::int64_t size_ = 0, rows_ = 0;
  int members_ = 1;
  std::unique_ptr<Workspace> own_;
  Workspace::Impl* workspace_;
};

extern template class Batch<float>;
extern template class Batch<double>;

}  // namespace regccrf
