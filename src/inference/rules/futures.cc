// The walk backward (see futures.h).
#include "inference/rules/futures.h"

#include <algorithm>

namespace regccrf {

void Futures::choose(std::span<const int> rules, Pairs which) {
  parts_.clear();
  part_of_.clear();
  int dims = 0;
  for (const int rule : rules) {
    const int begin = which == Pairs::own ? 0 : pairs_->own(rule);
    const int end = which == Pairs::own ? pairs_->own(rule) : pairs_->count(rule);
    if (static_cast<std::size_t>(rule) >= part_of_.size()) part_of_.resize(static_cast<std::size_t>(rule) + 1, -1);
    part_of_[rule] = static_cast<int>(parts_.size());
    parts_.push_back({rule, begin, end, dims - begin});
    dims += end - begin;
  }
  width_ = padded(static_cast<std::size_t>(dims));
}

void Futures::find(const Chain& chain, const RulePairs& pairs, std::span<const int> rules, Pairs which) {
  chain_ = &chain;
  pairs_ = &pairs;
  choose(rules, which);
  if (width_ == 0) return;
  const bool keep = which == Pairs::own;
  const auto most = static_cast<std::size_t>(chain.most_live());
  after_.resize((keep ? chain.node.size() : most) * width_);
  before_.resize(most * width_);
  for (std::int64_t t = chain.T() - 1; t >= 0; --t) {
    const Chain::Layer layer = chain.layers[t];
    double* const here = after_.data() + (keep ? static_cast<std::size_t>(layer.first) * width_ : 0);
    for (std::int32_t j = 0; j < layer.count; ++j) {
      double* const after = here + static_cast<std::size_t>(j) * width_;
      if (t + 1 == chain.T()) {
        at_end(after);
        continue;
      }
      const std::int32_t begin = chain.arc_begin[layer.first + j], end = chain.arc_begin[layer.first + j + 1];
      sum_rows(chain.arc_probability.data() + begin, chain.arc_to.data() + begin, static_cast<std::size_t>(end - begin),
               before_.data(), width_, after);
    }
    for (std::int32_t j = 0; j < layer.count; ++j) {
      const std::size_t at = static_cast<std::size_t>(j) * width_;
      step_over(chain.label[layer.first + j], here + at, before_.data() + at);
    }
  }
}

void Futures::at_end(double* after) const {
  std::fill_n(after, width_, 0.0);
  for (const Part& part : parts_) {
    for (int pair = part.begin; pair < part.end; ++pair) after[part.at + pair] = pairs_->differ_at_end(part.rule, pair);
  }
}

void Futures::step_over(Label label, const double* after, double* before) const {
  std::copy_n(after, width_, before);
  for (const int rule : pairs_->moved_by(label)) {
    const int i = static_cast<std::size_t>(rule) < part_of_.size() ? part_of_[rule] : -1;
    if (i < 0) continue;
    const Part& part = parts_[i];
    for (int pair = part.begin; pair < part.end; ++pair) {
      const std::int32_t next = pairs_->next(rule, pair, label);
      before[part.at + pair] = next == RulePairs::kAlike       ? 0
                               : next == RulePairs::kOneBroken ? 1
                                                               : after[part.at + next];
    }
  }
}

double Futures::broken(int i, State start) const {
  const Chain::Layer layer = chain_->layers[0];
  const int at = place(i, start, pairs_->free(parts_[i].rule));
  double sum = 0;
  for (std::int32_t j = 0; j < layer.count; ++j)
    sum += chain_->mass[layer.first + j] * before_[static_cast<std::size_t>(j) * width_ + at];
  return sum;
}

}  // namespace regccrf
