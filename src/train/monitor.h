// Monitor: judges each iteration. Whether the objective has converged, how the weights do on the development set and
// which were best there, whether to go on; and the checkpoints from which a run that was cut off goes on.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regccrf/trainer.h"
#include "train/features.h"
#include "train/gold_loss.h"
#include "train/state.h"

namespace regccrf {

class Monitor {
 public:
  Monitor(const Training& training, const TrainOptions& options, const Features& features,
          const OnProgress& on_progress, const Processes& processes);

  TrainState state;
  std::string stopped;  // why, when it has
  Certainty certainty;  // of the objective that after() is given next

  // Takes note of an iteration; false: stop. `w`: what a model would have now. Throws Stopped, and has noted nothing,
  // when that is asked for while the development set is decoded.
  bool after(double objective, double gradient_norm, std::span<const double> w);

  // Writes a checkpoint, reads one if there is one (Error if it belongs to other data or options).
  void save() const;
  bool load();

  const TrainOptions& options() const { return options_; }
  const Processes& processes() const { return processes_; }
  const std::vector<double>& best_weights() const { return state.best_w.empty() ? state.w : state.best_w; }

 private:
  std::vector<Label> predict(std::span<const double> w) const;  // for the development set
  bool develop(std::span<const double> w, Progress& progress);
  bool converged() const;
  std::map<std::string, std::string> fingerprint() const;

  const Training& training_;
  const TrainOptions& options_;
  const Features& features_;
  const OnProgress& on_progress_;
  const Processes& processes_;
  std::optional<Constraint> decoding_;  // of the development set
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace regccrf
