// AdaGrad (see adagrad.h).
//
// A step touches the weights of the attributes that its sequences have, and no others. So that the penalty l2 · ‖w‖²
// need not touch all of them, a weight's penalty is shared out over the positions that have its attribute: over a pass
// the shares add up to the whole, and the step's gradient is that of the objective in the mean.
//
// The mean of the weights after steps 1 … n is w_n − (Σ_s (s − 1) · change_s) / n; the sum is `drift`, which a step
// changes only where it changes w.
#include "train/adagrad.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "train/gold_loss.h"

namespace regccrf {

namespace {

// 0 … count - 1 in an order that depends on the seed and the pass.
std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t seed, int pass) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = count - 1; i > 0; --i) {
    const double u = uniform(seed, static_cast<std::uint64_t>(pass), 0, static_cast<std::uint64_t>(i));
    std::swap(order[i], order[std::min(i, static_cast<std::int64_t>(u * static_cast<double>(i + 1)))]);
  }
  return order;
}

class Steps {
 public:
  Steps(const Dataset& data, const Features& features, const Constraint& constraint, Monitor& monitor)
      : data_(data),
        features_(features),
        constraint_(constraint),
        options_(monitor.options()),
        state_(monitor.state),
        occurrences_(static_cast<std::size_t>(features.attributes()), 0),
        here_(occurrences_.size(), 0),
        gradient_(static_cast<std::size_t>(features.size()), 0),
        dg_(static_cast<std::size_t>(features.K) * features.K) {
    for (std::int32_t i : data.attribute) ++occurrences_[i];
  }

  // One step; gives the sequences' loss and the squared norm of its gradient.
  struct Outcome {
    double loss, squared;
  };
  Outcome operator()(std::span<const std::int64_t> batch) {
    gather(batch);
    const double loss =
        gold_loss(constraint_, batch_, h_, transitions_of(features_, state_.w), dh_, dg_, options_.threads, workspace_);
    scatter();
    return {loss, update(static_cast<double>(batch.size()) / static_cast<double>(data_.sequences()))};
  }

 private:
  // The batch's sequences, those with known gold first, and their emissions.
  void gather(std::span<const std::int64_t> batch) {
    ids_.assign(batch.begin(), batch.end());
    const auto unknown =
        std::stable_partition(ids_.begin(), ids_.end(), [&](std::int64_t i) { return gold_is_known(data_, i); });
    batch_ = {};
    batch_.known = static_cast<std::size_t>(unknown - ids_.begin());
    const auto gold = data_.gold.begin();
    for (const std::int64_t i : ids_) {
      batch_.first.push_back(batch_.rows());
      batch_.length.push_back(data_.length(i));
      if (!data_.weight.empty()) batch_.weight.push_back(data_.weight[i]);
      batch_.gold.insert(batch_.gold.end(), gold + data_.position[i], gold + data_.position[i + 1]);
    }
    allow_gold(features_.K, batch_);
    h_.resize(static_cast<std::size_t>(batch_.rows()) * features_.K);
    dh_.resize(h_.size());
    for (std::size_t j = 0; j < ids_.size(); ++j) {
      const std::int64_t begin = data_.position[ids_[j]];
      emissions_of(features_, state_.w, data_, begin, begin + batch_.length[j],
                   std::span(h_).subspan(static_cast<std::size_t>(batch_.first[j] * features_.K),
                                         static_cast<std::size_t>(batch_.length[j] * features_.K)));
    }
  }

  void scatter() {
    for (std::size_t j = 0; j < ids_.size(); ++j) {
      for (std::int64_t t = 0; t < batch_.length[j]; ++t) {
        const double* dh = dh_.data() + (batch_.first[j] + t) * features_.K;
        const std::int64_t at = data_.position[ids_[j]] + t;
        for (std::int64_t k = data_.item[at]; k < data_.item[at + 1]; ++k) {
          const std::int32_t i = data_.attribute[k];
          if (here_[i]++ == 0) touched_.push_back(i);
          const double value = data_.value.empty() ? 1 : static_cast<double>(data_.value[k]);
          for (std::int64_t f = features_.begin[i]; f < features_.begin[i + 1]; ++f)
            gradient_[f] += value * dh[features_.label[f]];
        }
      }
    }
    for (std::size_t b = 0; b < features_.bigram.size(); ++b)
      gradient_[features_.label.size() + b] = dg_[features_.bigram[b]];
  }

  double update(double share_of_pass) {
    double squared = 0;
    const bool averaging = !state_.drift.empty();
    const double before = state_.steps;
    const auto change = [&](std::size_t f, double share) {
      const double g = gradient_[f] + 2 * options_.l2 * share * state_.w[f];
      gradient_[f] = 0;
      if (g == 0) return;
      squared += g * g;
      state_.squares[f] += g * g;
      const double step = -options_.rate * g / std::sqrt(state_.squares[f]);
      state_.w[f] += step;
      if (averaging) state_.drift[f] += before * step;
    };
    for (const std::int32_t i : touched_) {
      const double share = static_cast<double>(here_[i]) / static_cast<double>(occurrences_[i]);
      here_[i] = 0;
      for (std::int64_t f = features_.begin[i]; f < features_.begin[i + 1]; ++f)
        change(static_cast<std::size_t>(f), share);
    }
    touched_.clear();
    for (std::size_t f = features_.label.size(); f < gradient_.size(); ++f) change(f, share_of_pass);
    if (averaging) ++state_.steps;
    return squared;
  }

  const Dataset& data_;
  const Features& features_;
  const Constraint& constraint_;
  const TrainOptions& options_;
  TrainState& state_;
  Workspace workspace_;
  std::vector<std::int64_t> occurrences_, here_;  // [attributes] in the data, in the batch
  std::vector<std::int32_t> touched_;
  std::vector<double> gradient_;
  std::vector<std::int64_t> ids_;
  GoldSequences batch_;
  std::vector<double> h_, dh_, dg_;
};

std::vector<double> mean_weights(const TrainState& state) {
  std::vector<double> mean = state.w;
  for (std::size_t f = 0; f < mean.size() && state.steps > 0; ++f) mean[f] -= state.drift[f] / state.steps;
  return mean;
}

}  // namespace

void run_adagrad(const Dataset& data, const Features& features, const Constraint& constraint, Monitor& monitor) {
  const TrainOptions& options = monitor.options();
  TrainState& state = monitor.state;
  const auto size = static_cast<std::size_t>(features.size());
  state.squares.resize(size, 0);
  Steps step(data, features, constraint, monitor);
  for (bool more = data.sequences() > 0; more;) {
    if (options.average && state.iteration == 1) state.drift.assign(size, 0);
    const std::vector<std::int64_t> order = shuffled(data.sequences(), options.seed, state.iteration);
    double loss = 0, squared = 0, steps = 0;
    for (std::size_t at = 0; at < order.size(); at += static_cast<std::size_t>(options.batch), ++steps) {
      const std::size_t count = std::min(static_cast<std::size_t>(options.batch), order.size() - at);
      const auto outcome = step(std::span(order).subspan(at, count));
      loss += outcome.loss;
      squared += outcome.squared;
    }
    double norm = 0;
    for (const double x : state.w) norm += x * x;
    const std::vector<double> result = mean_weights(state);
    more = monitor.after(loss + options.l2 * norm, std::sqrt(squared / steps), result);
    if (more && !options.checkpoint.empty() && state.iteration % options.every == 0) monitor.save();
    if (!more && state.best_w.empty()) state.best_w = result;
  }
}

}  // namespace regccrf
