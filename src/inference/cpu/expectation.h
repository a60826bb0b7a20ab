// Expectations: log_z and expected counts of one sequence, by the fastest pass that can promise its answer.
//
// Where nodes are few, that is the small pass (small_pass.h). Otherwise the fast pass (forward_backward.h) works in
// float or double with one scale per step. Both know afterwards whether anything that they lost could matter; a
// sequence for which they cannot rule that out is done again with more range: float, double, wide (wide_pass.h). One
// object serves a call: what depends on the transitions alone is prepared once, when it is first needed, for every
// constraint and precision.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "inference/batch.h"
#include "inference/cpu/wide_steps.h"

namespace regccrf {

// Where expected counts go, each times `weight`. Null: not wanted.
template <class Real>
struct Counts {
  Real* emissions = nullptr;      // [rows, K], the rows of the sequence are overwritten
  double* transitions = nullptr;  // [K, K], added to
  double* start = nullptr;        // [K], added to
  double* end = nullptr;          // [K], added to
  double weight = 1;

  bool wanted() const { return emissions || transitions || start || end; }
};

template <class P>
struct Gains;

template <class Real>
class Expectations {
 public:
  explicit Expectations(const Batch<Real>& batch);
  ~Expectations();

  double log_z(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena);
  // log_z and counts; where log_z is −inf the counts are zeros.
  double operator()(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena,
                    const Counts<Real>& counts);

 private:
  double wide(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena, const Counts<Real>& counts);
  const WideModel& wide_model();
  // A constraint's gains in precision P, made when they are first asked for.
  struct Prepared;
  Prepared& prepared(const Constraint& constraint);  // the mutex is held
  template <class P>
  const Gains<P>& gains(const Constraint& constraint);

  const Batch<Real>& batch_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Prepared>> prepared_;
  std::unique_ptr<WideModel> wide_;
};

extern template class Expectations<float>;
extern template class Expectations<double>;

}  // namespace regccrf
