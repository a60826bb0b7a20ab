// Batch training (see stages.h).
#include "train/stages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "train/lbfgs.h"
#include "train/objective.h"

namespace regccrf {
namespace {

// Value and gradient with the l2 penalty, over all processes.
class Penalised {
 public:
  Penalised(const Training& training, const Features& features, const Constraint& constraint,
            const TrainOptions& options, const Processes& processes)
      : constraint_(constraint),
        objective_(*training.data, features, constraint_, share(training, processes, 0), share(training, processes, 1),
                   options.threads, options.stop),
        l2_(options.l2),
        processes_(processes) {}

  // From here on with this loss, and no memory of sequences that were not certain.
  void begin(const TrainState& state) {
    objective_.under(state.phase == Phase::base ? constraint_.base() : constraint_, state.max_gap);
  }
  Certainty certainty() const {
    Certainty all = objective_.certainty();
    if (processes_.count == 1) return all;
    std::vector<double> gaps(static_cast<std::size_t>(processes_.count));
    gaps[static_cast<std::size_t>(processes_.rank)] = all.largest_gap;
    std::array<double, 2> sums = {all.slack, static_cast<double>(all.uncertified)};
    processes_.add_up(gaps);
    processes_.add_up(sums);
    return {*std::max_element(gaps.begin(), gaps.end()), sums[0], static_cast<std::int64_t>(sums[1])};
  }

  double operator()(std::span<const double> w, std::span<double> gradient) {
    double value = processes_.count > 1 ? by_all(w, gradient) : objective_(w, gradient);
    if (l2_ == 0) return value;
    double norm = 0;
    for (std::size_t f = 0; f < w.size(); ++f) {
      gradient[f] += 2 * l2_ * w[f];
      norm += w[f] * w[f];
    }
    return value + l2_ * norm;
  }

 private:
  // A process that is asked to stop still adds up: all stop, or none.
  double by_all(std::span<const double> w, std::span<double> gradient) {
    std::array<double, 2> value_and_asked = {0, 0};
    try {
      value_and_asked[0] = objective_(w, gradient);
    } catch (const Stopped&) {
      value_and_asked[1] = 1;
    }
    processes_.add_up(gradient);
    processes_.add_up(value_and_asked);
    if (value_and_asked[1] > 0) throw Stopped();
    return value_and_asked[0];
  }

  static std::int64_t share(const Training& training, const Processes& processes, int next) {
    return training.data->sequences() * (processes.rank + next) / processes.count;
  }

  Constraint constraint_;
  Objective objective_;
  double l2_;
  const Processes& processes_;
};

double sum_of_sizes(std::span<const double> w) {
  double sum = 0;
  for (const double x : w) sum += std::abs(x);
  return sum;
}

// What holds if there is nothing to improve.
void begin_at(double objective, TrainState& state) {
  state.objectives.push_back(objective);
  state.best.objective = state.last.objective = objective;
}

// --- stages ---

constexpr double kCoarse = 100, kTighten = 10, kLeastGap = 1e-6;
constexpr double kBaseShare = 0.6, kCoarseShare = 0.75, kFinerShare = 0.9;  // of max_iterations, at the most

bool is_coarse(const TrainState& state, const TrainOptions& options) {
  return state.phase == Phase::rules && state.max_gap > options.max_gap;
}

double tighter(const TrainState& state, const TrainOptions& options) {
  const double gap = state.max_gap / kTighten;
  return is_coarse(state, options) ? std::max(gap, options.max_gap) : gap;
}

// The iteration at which this gap ends at the latest; 0: none.
int last_iteration(const TrainState& state, const TrainOptions& options) {
  double share = 1;
  if (state.phase == Phase::base) share = kBaseShare;
  if (is_coarse(state, options)) share = tighter(state, options) > options.max_gap ? kCoarseShare : kFinerShare;
  return options.max_iterations > 1 ? std::max(1, static_cast<int>(share * options.max_iterations))
                                    : options.max_iterations;
}

bool at_last_iteration(const TrainState& state, const TrainOptions& options) {
  return options.max_iterations > 0 && state.iteration >= last_iteration(state, options);
}

// Whether there is more to do after the optimiser has ended; the state is then the next stage's.
bool next_stage(LbfgsEnd end, Monitor& monitor) {
  TrainState& state = monitor.state;
  const TrainOptions& options = monitor.options();
  if (state.phase == Phase::whole || (options.max_iterations > 0 && state.iteration >= options.max_iterations))
    return false;
  const bool over = end == LbfgsEnd::asked        ? monitor.stopped == "converged"
                    : end == LbfgsEnd::iterations ? at_last_iteration(state, options)
                                                  : true;
  if (!over) return false;
  if (state.phase == Phase::base) {
    state.phase = Phase::rules;
    state.max_gap = std::max(options.max_gap, std::min(kCoarse * options.max_gap, 0.1));
  } else if (is_coarse(state, options) || (end == LbfgsEnd::stuck && state.max_gap / kTighten >= kLeastGap)) {
    state.max_gap = tighter(state, options);
  } else {
    return false;
  }
  state.objectives.clear();
  monitor.stopped.clear();
  if (!options.checkpoint.empty()) monitor.save();
  return true;
}

// An objective whose gap may tighten while the optimiser runs. The optimiser sees values that go on from those before,
// shifted by a constant; what is reported is the objective itself.
class TighteningObjective {
 public:
  TighteningObjective(Penalised& objective, Monitor& monitor) : objective_(objective), monitor_(monitor) {}

  void begin() {
    objective_.begin(monitor_.state);
    shift_ = 0;
    uncertified_ = 0;
  }
  // Whether sequences were found uncertain since the last iteration. They count with the bound from then on, which may
  // be why no step improves on the value before.
  bool lost_certificates() {
    if (monitor_.state.phase != Phase::rules) return false;
    const std::int64_t before = std::exchange(uncertified_, objective_.certainty().uncertified);
    return uncertified_ > before;
  }
  double operator()(std::span<const double> w, std::span<double> gradient) {
    const double value = objective_(w, gradient);
    if (monitor_.state.objectives.empty()) begin_at(value + penalty(w), monitor_.state);
    return value + shift_;
  }
  // After an iteration; false: stop.
  bool after(const LbfgsIteration& i) {
    TrainState& state = monitor_.state;
    if (state.phase == Phase::rules) monitor_.certainty = objective_.certainty();
    uncertified_ = monitor_.certainty.uncertified;
    const bool more = monitor_.after(i.objective - shift_, i.gradient_norm, i.w);
    std::copy(i.w.begin(), i.w.end(), state.w.begin());  // what counts if the next iteration is cut off
    const bool settled = more ? at_last_iteration(state, monitor_.options()) : monitor_.stopped == "converged";
    const bool last = monitor_.options().max_iterations > 0 && state.iteration >= monitor_.options().max_iterations;
    if (!settled || last || !is_coarse(state, monitor_.options())) return more;
    tighten(i);
    return true;
  }

 private:
  double penalty(std::span<const double> w) const {
    const double l1 = monitor_.options().l1;
    return l1 > 0 ? l1 * sum_of_sizes(w) : 0;
  }
  void tighten(const LbfgsIteration& i) {
    TrainState& state = monitor_.state;
    state.max_gap = tighter(state, monitor_.options());
    state.objectives.clear();
    monitor_.stopped.clear();
    objective_.begin(state);
    gradient_.resize(i.w.size());
    const double value = objective_(i.w, gradient_) + penalty(i.w);
    state.objectives.push_back(value);
    shift_ = i.objective - value;
  }

  Penalised& objective_;
  Monitor& monitor_;
  double shift_ = 0;
  std::int64_t uncertified_ = 0;  // after the last iteration
  std::vector<double> gradient_;
};

// Iterations until the optimiser has to begin afresh; 0: no limit.
int iterations_left(const TrainState& state, const TrainOptions& options) {
  int limit = 0;
  if (options.max_iterations > 0) {
    const int last = state.phase == Phase::base ? last_iteration(state, options) : options.max_iterations;
    limit = std::max(1, last - state.iteration);
  }
  if (options.checkpoint.empty()) return limit;
  const int round = options.every - state.iteration % options.every;
  return limit > 0 ? std::min(limit, round) : round;
}

}  // namespace

void run_lbfgs(const Training& training, const Features& features, const Constraint& constraint, Monitor& monitor) {
  Penalised penalised(training, features, constraint, monitor.options(), monitor.processes());
  TighteningObjective objective(penalised, monitor);
  for (bool again = false;;) {
    if (!again) objective.begin();
    const LbfgsEnd end = minimize_lbfgs(
        monitor.state.w, monitor.options(), iterations_left(monitor.state, monitor.options()),
        [&](std::span<const double> w, std::span<double> gradient) { return objective(w, gradient); },
        [&](const LbfgsIteration& i) { return objective.after(i); });
    again = end == LbfgsEnd::stuck && objective.lost_certificates();
    if (again || next_stage(end, monitor)) continue;
    if (end == LbfgsEnd::asked) return;  // the monitor knows why
    if (end != LbfgsEnd::iterations) {
      monitor.stopped = "converged";
      return;
    }
    monitor.save();
  }
}

}  // namespace regccrf
