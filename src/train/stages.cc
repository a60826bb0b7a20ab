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
    std::array<double, 3> sums = {all.slack, static_cast<double>(all.uncertified), static_cast<double>(all.bounds)};
    processes_.add_up(gaps);
    processes_.add_up(sums);
    return {*std::max_element(gaps.begin(), gaps.end()), sums[0], static_cast<std::int64_t>(sums[1]),
            static_cast<std::int64_t>(sums[2])};
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

// What holds from here on if there is nothing to improve; of the best iteration too, where that is the last one.
void begin_at(double objective, const Certainty& certainty, TrainState& state) {
  state.objectives.push_back(objective);
  const bool last_is_best = state.best.iteration == state.last.iteration;
  for (Progress* progress : {&state.last, last_is_best ? &state.best : &state.last}) {
    progress->objective = objective;
    progress->phase = state.phase;
    if (state.phase != Phase::rules) continue;
    progress->largest_gap = certainty.largest_gap;
    progress->slack = certainty.slack;
    progress->uncertified = certainty.uncertified;
    progress->bounds = certainty.bounds;
  }
}

// --- stages ---

constexpr double kCoarse = 100, kFirstGap = 0.1, kTighten = 10, kLeastGap = 1e-6;
constexpr int kAnew = 10;  // iterations; the gaps that grew are then tried again, but for the last stage
constexpr double kBaseShare = 0.3, kCoarseShare = 0.6, kFinerShare = 0.8;  // of max_iterations, at the most

bool is_coarse(const TrainState& state, const TrainOptions& options) {
  return state.phase == Phase::rules && state.max_gap > options.max_gap;
}
// The last stage goes on as long as the optimiser does.
bool is_last(const TrainState& state, const TrainOptions& options) {
  return state.phase != Phase::base && !is_coarse(state, options);
}

// The rules, or a smaller gap.
void tighten(TrainState& state, const TrainOptions& options) {
  if (state.phase == Phase::base) {
    state.phase = Phase::rules;
    state.max_gap = std::max(options.max_gap, std::min(kCoarse * options.max_gap, kFirstGap));
  } else {
    const double gap = state.max_gap / kTighten;
    state.max_gap = is_coarse(state, options) ? std::max(gap, options.max_gap) : gap;
  }
  state.objectives.clear();
}

// The iteration at which this stage ends at the latest; 0: none.
int last_iteration(const TrainState& state, const TrainOptions& options) {
  double share = 1;
  if (state.phase == Phase::base) share = kBaseShare;
  if (is_coarse(state, options)) share = state.max_gap > kTighten * options.max_gap ? kCoarseShare : kFinerShare;
  return options.max_iterations > 1 ? std::max(1, static_cast<int>(share * options.max_iterations))
                                    : options.max_iterations;
}

bool at_last_iteration(const TrainState& state, const TrainOptions& options) {
  return options.max_iterations > 0 && state.iteration >= last_iteration(state, options);
}

// The next stage that has iterations left: of few, the last one has its share.
void advance(TrainState& state, const TrainOptions& options) {
  do {
    tighten(state, options);
  } while (!is_last(state, options) && at_last_iteration(state, options));
}

// Whether there is more to do after the optimiser has ended; the state is then the next stage's.
bool next_stage(LbfgsEnd end, Monitor& monitor) {
  TrainState& state = monitor.state;
  const TrainOptions& options = monitor.options();
  const bool over = end == LbfgsEnd::converged || end == LbfgsEnd::stuck;
  if (state.phase == Phase::whole || !over) return false;
  if (options.max_iterations > 0 && state.iteration >= options.max_iterations) return false;
  // Where no step improves on the value at the last gap, the gap may be why; unless some sequences have a larger one.
  const bool helps =
      end == LbfgsEnd::stuck && monitor.certainty.uncertified == 0 && state.max_gap / kTighten >= kLeastGap;
  if (is_last(state, options) && !helps) return false;
  advance(state, options);
  monitor.stopped.clear();
  if (!options.checkpoint.empty()) monitor.save();
  return true;
}

// An objective that goes from stage to stage while the optimiser runs, which keeps its memory of the curvature. The
// optimiser sees values that go on from those before, shifted by a constant; what is reported is the objective itself.
class StagedObjective {
 public:
  StagedObjective(Penalised& objective, Monitor& monitor) : objective_(objective), monitor_(monitor) {}

  void begin() {
    objective_.begin(monitor_.state);
    shift_ = 0;
    entered_ = false;
    uncertified_ = since_begun_ = 0;
  }
  // Whether the optimiser was misled, and should begin afresh where no step improved: the last gradient that it knows
  // is that of the stage before, or some gaps have grown since the last iteration.
  bool misled() {
    if (monitor_.state.phase != Phase::rules) return false;
    const std::int64_t before = std::exchange(uncertified_, objective_.certainty().uncertified);
    return std::exchange(entered_, false) || uncertified_ > before;
  }
  double operator()(std::span<const double> w, std::span<double> gradient) {
    const double value = objective_(w, gradient);
    if (monitor_.state.objectives.empty()) begin_at(value + penalty(w), objective_.certainty(), monitor_.state);
    return value + shift_;
  }
  // After an iteration; false: stop.
  bool after(const LbfgsIteration& i) {
    entered_ = false;
    TrainState& state = monitor_.state;
    if (state.phase == Phase::rules) monitor_.certainty = objective_.certainty();
    uncertified_ = monitor_.certainty.uncertified;
    const bool more = monitor_.after(i.objective - shift_, i.gradient_norm, i.w);
    std::copy(i.w.begin(), i.w.end(), state.w.begin());  // what counts if the next iteration is cut off
    const bool settled = more ? at_last_iteration(state, monitor_.options()) : monitor_.stopped == "converged";
    const bool last = monitor_.options().max_iterations > 0 && state.iteration >= monitor_.options().max_iterations;
    if (last || state.phase == Phase::whole || is_last(state, monitor_.options())) return more;
    if (settled) {
      advance(state, monitor_.options());
    } else if (!more || state.phase == Phase::base || ++since_begun_ < kAnew) {
      return more;
    }
    go_on(i);
    return true;
  }

 private:
  double penalty(std::span<const double> w) const {
    const double l1 = monitor_.options().l1;
    return l1 > 0 ? l1 * sum_of_sizes(w) : 0;
  }
  void go_on(const LbfgsIteration& i) {
    TrainState& state = monitor_.state;
    entered_ = true;
    since_begun_ = 0;
    state.objectives.clear();
    monitor_.stopped.clear();
    objective_.begin(state);
    gradient_.resize(i.w.size());
    const double value = objective_(i.w, gradient_) + penalty(i.w);
    begin_at(value, objective_.certainty(), state);
    shift_ = i.objective - value;
  }

  Penalised& objective_;
  Monitor& monitor_;
  double shift_ = 0;
  bool entered_ = false;          // a stage, at the last iteration
  int since_begun_ = 0;           // iterations
  std::int64_t uncertified_ = 0;  // after the last iteration
  std::vector<double> gradient_;
};

// Iterations until the optimiser has to begin afresh; 0: no limit.
int iterations_left(const TrainState& state, const TrainOptions& options) {
  int limit = 0;
  if (options.max_iterations > 0) limit = std::max(1, options.max_iterations - state.iteration);
  if (options.checkpoint.empty()) return limit;
  const int round = options.every - state.iteration % options.every;
  return limit > 0 ? std::min(limit, round) : round;
}

}  // namespace

void run_lbfgs(const Training& training, const Features& features, const Constraint& constraint, Monitor& monitor) {
  Penalised penalised(training, features, constraint, monitor.options(), monitor.processes());
  StagedObjective objective(penalised, monitor);
  for (bool again = false;;) {
    if (!again) objective.begin();
    const LbfgsEnd end = minimize_lbfgs(
        monitor.state.w, monitor.options(), iterations_left(monitor.state, monitor.options()),
        [&](std::span<const double> w, std::span<double> gradient) { return objective(w, gradient); },
        [&](const LbfgsIteration& i) { return objective.after(i); });
    again = end == LbfgsEnd::stuck && objective.misled();
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
