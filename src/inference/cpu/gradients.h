// Gradients of a whole call: emission rows are written in place, the sums over sequences in double, one for each
// thread, and put together at the end.
#pragma once

#include <algorithm>
#include <vector>

#include "inference/batch.h"
#include "inference/cpu/expectation.h"
#include "regccrf/loss.h"

namespace regccrf {

template <class Real>
void clear_rows(const Counts<Real>& counts, const Sequence<Real>& sequence) {
  if (!counts.emissions) return;
  for (std::int64_t t = 0; t < sequence.T; ++t)
    std::fill_n(counts.emissions + sequence.row(t) * sequence.K, sequence.K, Real{0});
}

template <class Real>
class GradientSums {
 public:
  GradientSums(const Batch<Real>& batch, const Gradients<Real>& gradients)
      : gradients_(gradients), K_(static_cast<std::size_t>(batch.K())) {
    const char* operation = batch.operation();
    const auto size = static_cast<std::size_t>(batch.rows()) * K_;
    if (!gradients.emissions.empty())
      check_size(operation, "the emissions' gradient", gradients.emissions.size(), size, "[rows, K]");
    if (!gradients.transitions.empty())
      check_size(operation, "the transitions' gradient", gradients.transitions.size(), K_ * K_, "[K, K]");
    if (!gradients.start.empty())
      check_size(operation, "the start scores' gradient", gradients.start.size(), K_, "[K]");
    if (!gradients.end.empty()) check_size(operation, "the end scores' gradient", gradients.end.size(), K_, "[K]");
    if (!gradients.weights.empty())
      check_size(operation, "weights", gradients.weights.size(), static_cast<std::size_t>(batch.size()), "[B]");
    sums_.resize(static_cast<std::size_t>(batch.members()));
    for (Sums& sums : sums_) {
      if (!gradients.transitions.empty()) sums.transitions.assign(K_ * K_, 0);
      if (!gradients.start.empty()) sums.start.assign(K_, 0);
      if (!gradients.end.empty()) sums.end.assign(K_, 0);
    }
    clear_absent(batch);
  }

  // Where one sequence's counts go when `member` computes them.
  Counts<Real> counts(const Sequence<Real>& sequence, int member) {
    const auto pointer = [](std::vector<double>& sum) { return sum.empty() ? nullptr : sum.data(); };
    Sums& sums = sums_[member];
    return {.emissions = gradients_.emissions.empty() ? nullptr : gradients_.emissions.data(),
            .transitions = pointer(sums.transitions),
            .start = pointer(sums.start),
            .end = pointer(sums.end),
            .weight = gradients_.weights.empty() ? 1.0 : static_cast<double>(gradients_.weights[sequence.index])};
  }

  void finish() {
    for (std::size_t i = 1; i < sums_.size(); ++i) {
      add(sums_[i].transitions, sums_[0].transitions);
      add(sums_[i].start, sums_[0].start);
      add(sums_[i].end, sums_[0].end);
    }
    std::copy(sums_[0].transitions.begin(), sums_[0].transitions.end(), gradients_.transitions.begin());
    std::copy(sums_[0].start.begin(), sums_[0].start.end(), gradients_.start.begin());
    std::copy(sums_[0].end.begin(), sums_[0].end.end(), gradients_.end.begin());
  }

 private:
  struct Sums {
    std::vector<double> transitions, start, end;
  };
  static void add(const std::vector<double>& from, std::vector<double>& to) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] += from[i];
  }
  void clear_absent(const Batch<Real>& batch) {
    const Layout& layout = batch.scores().layout;
    if (layout.mask().empty() || gradients_.emissions.empty()) return;
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const std::int64_t first = layout.first(i);
      for (std::int64_t t = 0; t < batch.length(i); ++t) {
        const std::int64_t row = first + t * layout.stride();
        if (!layout.mask()[row]) std::fill_n(gradients_.emissions.data() + row * K_, K_, Real{0});
      }
    }
  }

  const Gradients<Real>& gradients_;
  std::size_t K_;
  std::vector<Sums> sums_;
};

}  // namespace regccrf
