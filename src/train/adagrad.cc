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
#include <atomic>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/philox.h"
#include "base/threads.h"
#include "tagger/marked_scores.h"
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

// Some of a batch's sequences, those with known gold first, and what a thread works out about them.
struct Piece {
  std::vector<std::int64_t> ids;
  GoldSequences sequences;
  std::vector<double> h, dh;  // [rows, width]
  std::vector<double> sums;   // [rows, K] dh without marks, where attributes weigh pairs; else dh has it
  std::vector<double> dg;     // [K, K]
  double loss = 0;
  RuleLosses rules = {};
};

class Steps {
 public:
  Steps(const Dataset& data, const Features& features, const Constraint& constraint, Monitor& monitor)
      : data_(data),
        features_(features),
        constraint_(constraint),
        base_(constraint.base()),
        options_(monitor.options()),
        state_(monitor.state),
        occurrences_(static_cast<std::size_t>(features.attributes()), 0),
        here_(occurrences_.size(), 0),
        gradient_(static_cast<std::size_t>(features.size()), 0),
        pieces_(1),
        workspaces_(static_cast<std::size_t>(options_.threads)) {
    for (std::int32_t i : data.attribute) ++occurrences_[i];
  }

  // Of all steps since this was last asked.
  Certainty take_certainty() { return std::exchange(certainty_, {}); }

  // One step; gives the sequences' loss and the squared norm of its gradient.
  struct Outcome {
    double loss, squared;
  };
  Outcome operator()(std::span<const std::int64_t> batch) {
    const std::size_t count = cut(batch);
    transitions_ = transitions_of(features_, state_.w);
    std::atomic<std::size_t> next{0};
    std::atomic<bool> stopped{false};
    pool_.run(count == 1 ? 1 : options_.threads, [&](int member) {
      for (std::size_t i; !stopped && (i = next++) < count;) {
        work_out(pieces_[i], workspaces_[static_cast<std::size_t>(member)]);
        if (member == 0 && options_.stop && options_.stop()) stopped = true;
      }
    });
    if (stopped) throw Stopped();
    double loss = 0;
    for (std::size_t i = 0; i < count; ++i) {
      scatter(pieces_[i]);
      loss += pieces_[i].loss;
      certainty_.add(pieces_[i].rules.certainty);
    }
    return {loss, update(static_cast<double>(batch.size()) / static_cast<double>(data_.sequences()))};
  }

 private:
  // How many pieces a batch is worked out in. It depends on the batch alone, not on the number of threads, so that
  // every sum has one order.
  std::size_t cut(std::span<const std::int64_t> batch) {
    constexpr double worth = 1 << 18;   // products below which threads are woken for nothing
    constexpr double rows_each = 32;    // at least, as a piece prepares all transitions
    constexpr double most = 16;         // pieces
    constexpr double memory = 1 << 27;  // numbers of all pieces' dg
    const double K = features_.K;
    double rows = 0;
    for (const std::int64_t i : batch) rows += static_cast<double>(data_.length(i));
    const bool small = rows * static_cast<double>(constraint_.size().products) < worth;
    const double wanted = std::min({most, static_cast<double>(batch.size()), rows / rows_each, memory / (K * K)});
    const std::size_t count = small ? 1 : static_cast<std::size_t>(std::max(1.0, wanted));
    if (pieces_.size() < count) pieces_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t begin = batch.size() * i / count, end = batch.size() * (i + 1) / count;
      pieces_[i].ids.assign(batch.begin() + static_cast<std::ptrdiff_t>(begin),
                            batch.begin() + static_cast<std::ptrdiff_t>(end));
    }
    return count;
  }

  void work_out(Piece& piece, Workspace& workspace) const {
    gather(piece);
    piece.dg.assign(transitions_.size(), 0);
    const Constraint& constraint = state_.phase == Phase::base ? base_ : constraint_;
    piece.rules = {.max_gap = options_.max_gap, .cells_a_position = affordable_cells(data_.positions())};
    RuleLosses* const rules = state_.phase == Phase::rules ? &piece.rules : nullptr;
    if (!features_.has_pairs()) {
      piece.loss =
          gold_loss(constraint, piece.sequences, piece.h, transitions_, piece.dh, piece.dg, 1, workspace, rules);
      return;
    }
    piece.loss = gold_loss(constraint, piece.sequences, piece.h, {}, piece.dh, {}, 1, workspace, rules);
    piece.sums.resize(static_cast<std::size_t>(piece.sequences.rows() * features_.K));
    sum_marks(features_.K, piece.dh, piece.sums);
    add_pairs(features_.K, piece.dh, piece.dg);
  }

  // The sequences and their emissions.
  void gather(Piece& piece) const {
    std::vector<std::int64_t>& ids = piece.ids;
    const auto unknown =
        std::stable_partition(ids.begin(), ids.end(), [&](std::int64_t i) { return gold_is_known(data_, i); });
    GoldSequences& sequences = piece.sequences = {};
    sequences.known = static_cast<std::size_t>(unknown - ids.begin());
    const auto gold = data_.gold.begin();
    for (const std::int64_t i : ids) {
      sequences.first.push_back(sequences.rows());
      sequences.length.push_back(data_.length(i));
      if (!data_.weight.empty()) sequences.weight.push_back(data_.weight[i]);
      sequences.gold.insert(sequences.gold.end(), gold + data_.position[i], gold + data_.position[i + 1]);
    }
    number_gold(features_.K, features_.width(), sequences);
    const std::int64_t width = features_.width();
    piece.h.resize(static_cast<std::size_t>(sequences.rows() * width));
    piece.dh.resize(piece.h.size());
    for (std::size_t j = 0; j < ids.size(); ++j) {
      const std::int64_t begin = data_.position[ids[j]];
      emissions_of(features_, state_.w, data_, begin, begin + sequences.length[j],
                   std::span(piece.h).subspan(static_cast<std::size_t>(sequences.first[j] * width),
                                              static_cast<std::size_t>(sequences.length[j] * width)));
    }
  }

  void scatter(const Piece& piece) {
    const std::vector<double>& dh = features_.has_pairs() ? piece.sums : piece.dh;
    for (std::size_t j = 0; j < piece.ids.size(); ++j) {
      for (std::int64_t t = 0; t < piece.sequences.length[j]; ++t) {
        const std::int64_t row = piece.sequences.first[j] + t, at = data_.position[piece.ids[j]] + t;
        for (std::int64_t k = data_.item[at]; k < data_.item[at + 1]; ++k) {
          const std::int32_t i = data_.attribute[k];
          if (here_[i]++ == 0) touched_.push_back(i);
          const double value = data_.value.empty() ? 1 : static_cast<double>(data_.value[k]);
          add(features_, i, value, dh.data() + row * features_.K, gradient_.data());
          if (features_.has_pairs())
            add(features_.pairs, i, value, piece.dh.data() + row * features_.width(),
                gradient_.data() + features_.first_pair());
        }
      }
    }
    for (std::size_t b = 0; b < features_.bigram.size(); ++b)
      gradient_[features_.label.size() + b] += piece.dg[features_.bigram[b]];
  }

  static void add(const Columns& columns, std::int32_t attribute, double value, const double* dh, double* gradient) {
    for (std::int64_t f = columns.begin[attribute]; f < columns.begin[attribute + 1]; ++f)
      gradient[f] += value * dh[columns.label[f]];
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
      if (!features_.has_pairs()) continue;
      for (std::int64_t f = features_.pairs.begin[i]; f < features_.pairs.begin[i + 1]; ++f)
        change(static_cast<std::size_t>(features_.first_pair() + f), share);
    }
    touched_.clear();
    for (std::size_t b = 0; b < features_.bigram.size(); ++b) change(features_.label.size() + b, share_of_pass);
    if (averaging) ++state_.steps;
    return squared;
  }

  const Dataset& data_;
  const Features& features_;
  const Constraint& constraint_;
  Constraint base_;
  Certainty certainty_;
  const TrainOptions& options_;
  TrainState& state_;
  ThreadPool pool_;
  std::vector<std::int64_t> occurrences_, here_;  // [attributes] in the data, in the batch
  std::vector<std::int32_t> touched_;
  std::vector<double> gradient_;
  std::vector<Piece> pieces_;
  std::vector<Workspace> workspaces_;  // [threads]
  std::vector<double> transitions_;    // [K, K]
};

std::vector<double> mean_weights(const TrainState& state) {
  std::vector<double> mean = state.w;
  for (std::size_t f = 0; f < mean.size() && state.steps > 0; ++f) mean[f] -= state.drift[f] / state.steps;
  return mean;
}

// One pass: the sequences' losses and the root mean square of the steps' gradients.
struct Pass {
  double loss = 0, gradient_norm = 0;
};

Pass run_pass(Steps& step, std::span<const std::int64_t> order, const TrainOptions& options) {
  double loss = 0, squared = 0, steps = 0;
  for (std::size_t at = 0; at < order.size(); at += static_cast<std::size_t>(options.batch), ++steps) {
    stop_if_asked(options.stop);
    const std::size_t count = std::min(static_cast<std::size_t>(options.batch), order.size() - at);
    const auto outcome = step(order.subspan(at, count));
    loss += outcome.loss;
    squared += outcome.squared;
  }
  return {loss, std::sqrt(squared / steps)};
}

// Passes until the monitor says stop; `result` is what the last whole one gave.
void run_passes(const Dataset& data, Steps& step, Monitor& monitor, std::vector<double>& result) {
  const TrainOptions& options = monitor.options();
  TrainState& state = monitor.state;
  for (bool more = data.sequences() > 0; more;) {
    if (options.average && state.iteration == 1) state.drift.assign(state.w.size(), 0);
    if (state.phase == Phase::base && state.iteration >= 1) state.phase = Phase::rules;
    const Pass pass = run_pass(step, shuffled(data.sequences(), options.seed, state.iteration), options);
    monitor.certainty = step.take_certainty();
    double norm = 0;
    for (const double x : state.w) norm += x * x;
    std::vector<double> mean = mean_weights(state);
    more = monitor.after(pass.loss + options.l2 * norm, pass.gradient_norm, mean);
    result = std::move(mean);
    if (more && !options.checkpoint.empty() && state.iteration % options.every == 0) monitor.save();
  }
}

}  // namespace

void run_adagrad(const Dataset& data, const Features& features, const Constraint& constraint, Monitor& monitor) {
  TrainState& state = monitor.state;
  state.squares.resize(static_cast<std::size_t>(features.size()), 0);
  Steps step(data, features, constraint, monitor);
  std::vector<double> result = mean_weights(state);
  const auto keep = [&] {
    if (state.best_w.empty()) state.best_w = result;
  };
  try {
    run_passes(data, step, monitor, result);
  } catch (const Stopped&) {
    keep();
    throw;
  }
  keep();
}

}  // namespace regccrf
