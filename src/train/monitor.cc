// What is judged after each iteration (see monitor.h).
#include "train/monitor.h"

#include <algorithm>
#include <cmath>

namespace regccrf {

namespace {

constexpr double kBaseTolerance = 0.01;    // the base's phase need not come near its optimum …
constexpr double kCoarseTolerance = 1e-3;  // … nor the first steps under rules, with larger gaps

// What the model decodes under: the constraint, or none.
Constraint decoding_constraint(const Training& training) {
  const bool constrained = training.constraint && training.constrain != Constrain::none;
  return constrained ? *training.constraint : Constraint::unconstrained(training.labels);
}

}  // namespace

Monitor::Monitor(const Training& training, const TrainOptions& options, const Features& features,
                 const OnProgress& on_progress, const Processes& processes)
    : training_(training), options_(options), features_(features), on_progress_(on_progress), processes_(processes) {
  if (training.development) decoding_ = inference_constraint(features, decoding_constraint(training));
}

std::vector<Label> Monitor::predict(std::span<const double> w) const {
  std::vector<Label> predicted;
  double asked = 0;
  try {
    predicted = decode(features_, w, *training_.development, *decoding_, options_.threads, options_.stop);
  } catch (const Stopped&) {
    asked = 1;
  }
  if (processes_.count > 1) processes_.add_up({&asked, 1});  // all stop, or none
  if (asked > 0) throw Stopped();
  return predicted;
}

bool Monitor::develop(std::span<const double> w, Progress& progress) {
  if (!training_.development) return true;
  progress.development = training_.score(predict(w));
  // Of equal scores the later one is kept: more training, no worse. Patience ends all the same when nothing rises.
  const bool first = !state.best.development, rises = first || *progress.development > *state.best.development;
  progress.best = rises || *progress.development == *state.best.development;
  state.since_rise = rises ? 0 : state.since_rise + 1;
  if (progress.best) state.best_w.assign(w.begin(), w.end());
  return options_.patience == 0 || state.since_rise < options_.patience;
}

bool Monitor::converged() const {
  const auto period = static_cast<std::size_t>(options_.period);
  const std::vector<double>& f = state.objectives;
  if (f.size() <= period) return false;
  const bool coarse = state.phase == Phase::rules && state.max_gap > options_.max_gap;
  const double least = state.phase == Phase::base ? kBaseTolerance : coarse ? kCoarseTolerance : 0;
  const double tolerance = std::max(options_.tolerance, least);
  return f[f.size() - 1 - period] - f.back() < tolerance * std::abs(f.back());
}

bool Monitor::after(double objective, double gradient_norm, std::span<const double> w) {
  Progress progress;
  progress.iteration = state.iteration + 1;
  progress.objective = objective;
  progress.gradient_norm = gradient_norm;
  progress.best = true;
  progress.phase = state.phase;
  if (state.phase == Phase::rules) {
    progress.largest_gap = certainty.largest_gap;
    progress.slack = certainty.slack;
    progress.uncertified = certainty.uncertified;
    progress.bounds = certainty.bounds;
  }
  const bool patient = develop(w, progress);
  ++state.iteration;
  state.objectives.push_back(objective);
  if (state.objectives.size() > static_cast<std::size_t>(options_.period) + 1) {
    state.objectives.erase(state.objectives.begin());
  }
  progress.seconds = state.seconds + std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  state.last = progress;
  if (progress.best) state.best = progress;
  double asked = on_progress_ && !on_progress_(progress) ? 1 : 0;
  if (processes_.count > 1) processes_.add_up({&asked, 1});  // all stop, or none
  stopped = asked > 0                                                                   ? "asked to"
            : !patient                                                                  ? "patience"
            : converged()                                                               ? "converged"
            : options_.max_iterations > 0 && state.iteration >= options_.max_iterations ? "max_iterations"
                                                                                        : "";
  return stopped.empty();
}

}  // namespace regccrf
