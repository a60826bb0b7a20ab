// The walk that makes a sentence's automaton, and the walk back over it (see sentence_automaton.h).
#include "inference/rules/sentence_automaton.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace regccrf {
namespace {

constexpr std::size_t kMostFutures = std::size_t{1} << 26;  // numbers; past it states are not compared
constexpr double kProductsOfACell = 64;                     // of looking ahead, for each cell that is allowed

}  // namespace

bool SentenceAutomaton::make(const Chain& chain, const RuleTables& rules, const RulePairs& pairs,
                             std::span<const int> which, const Allowance& allowance, std::int64_t most_cells) {
  chain_ = &chain;
  rules_ = &rules;
  pairs_ = &pairs;
  allowance_ = allowance;
  mass_ = forgotten_ = pruned_ = 0;
  small_ = false;
  error_ = chain.lost;
  layers_.clear();
  alpha_.clear();
  moved_.clear();
  const auto K = static_cast<std::size_t>(rules.labels());
  row_by_label_.resize(K);
  seen_.assign(K, 0);
  stamp_ = 0;
  track(which, allowance.untracked);
  if (static_cast<double>(chain.arc_to.size()) * static_cast<double>(dims_ + 1) >
      kProductsOfACell * static_cast<double>(most_cells)) {
    return false;
  }
  look_ahead();
  first_layer();
  for (std::int64_t t = 0; t + 1 < chain.T(); ++t) {
    small_ = !next_layer(t);
    if (small_ || cells() > most_cells) return false;
  }
  small_ = true;
  const Layer& last = layers_.back();
  for (std::int32_t i = 0; i < last.rows; ++i) {
    const State* states = table_.states(rows_[i]);
    bool accepted = true;
    for (std::size_t q = 0; q < tracked_.size(); ++q) accepted = accepted && rules.accepts(tracked_[q].rule, states[q]);
    for (std::int32_t j = 0; j < last.live; ++j) {
      double& cell = alpha_[last.cells + static_cast<std::int64_t>(i) * last.live + j];
      if (accepted) mass_ += cell;
      if (!accepted) cell = 0;
    }
  }
  error_ += forgotten_ + pruned_;
  return true;
}

int SentenceAutomaton::most_rows() const {
  std::int32_t most = 0;
  for (const Layer& layer : layers_) most = std::max(most, layer.rows);
  return most;
}

// --- not tracking ---

void SentenceAutomaton::track(std::span<const int> which, double allowed) {
  by_price_.assign(which.begin(), which.end());
  prices_.assign(static_cast<std::size_t>(rules_->size()), 2);
  for (const int rule : which) prices_[rule] = untracked_price(rule);
  std::stable_sort(by_price_.begin(), by_price_.end(), [&](int x, int y) { return prices_[x] < prices_[y]; });
  std::size_t tracked_from = 0;
  double spent = 0;
  while (tracked_from < by_price_.size() && spent + prices_[by_price_[tracked_from]] <= allowed)
    spent += prices_[by_price_[tracked_from++]];
  error_ += spent;
  by_price_.erase(by_price_.begin(), by_price_.begin() + static_cast<std::ptrdiff_t>(tracked_from));
  std::sort(by_price_.begin(), by_price_.end());
  tracked_.clear();
  dims_ = 0;
  for (const int rule : by_price_) {
    const int count = pairs_->count(rule);
    tracked_.push_back({rule, count > 0 ? static_cast<int>(dims_) : -1});
    dims_ += static_cast<std::size_t>(count);
  }
  if (dims_ * chain_->node.size() <= kMostFutures) return;
  dims_ = 0;
  for (Tracked& tracked : tracked_) tracked.first = -1;
}

// A bound on the probability that a sequence breaks the rule. It has to have a label that moves the start state. And if
// it has none that is bad alone, it has to have two that move some state: P(N ≥ 2) ≤ E[N] − P(N ≥ 1), and P(N ≥ 1) is
// at least the largest probability of such a label at any one position.
double SentenceAutomaton::untracked_price(int rule) {
  if (!pairs_->idle(rule)) return 2;
  double start = 0, bad = 0, moving = 0, most = 0;
  for (std::int64_t t = 0; t < chain_->T(); ++t) {
    const Chain::Layer layer = chain_->layers[t];
    double here = 0;
    for (std::int32_t n = layer.first; n < layer.first + layer.count; ++n) {
      const Label a = chain_->label[n];
      if (!pairs_->moves(rule, a)) continue;
      here += chain_->mass[n];
      start += pairs_->starts(rule, a) ? chain_->mass[n] : 0;
      bad += pairs_->bad_alone(rule, a) ? chain_->mass[n] : 0;
    }
    moving += here;
    most = std::max(most, here);
  }
  // The difference may be all rounding errors, which are far below this.
  return std::min(start, bad + std::max(moving - most, 0.0) + 1e-15 * moving);
}

// --- what rules' states mean to the future ---

void SentenceAutomaton::look_ahead() {
  if (dims_ == 0) return;
  futures_.resize(chain_->node.size() * dims_);
  for (std::int64_t t = chain_->T() - 1; t >= 0; --t) {
    const Chain::Layer layer = chain_->layers[t];
    const bool last = t + 1 == chain_->T();
    for (std::int32_t j = 0; j < layer.count; ++j) {
      double* to = futures_.data() + static_cast<std::size_t>(layer.first + j) * dims_;
      std::fill_n(to, dims_, 0.0);
      for (const Tracked& tracked : tracked_) {
        for (int pair = 0; last && tracked.first >= 0 && pair < pairs_->count(tracked.rule); ++pair)
          to[tracked.first + pair] = pairs_->differ_at_end(tracked.rule, pair);
      }
      const std::int32_t n = layer.first + j;
      for (std::int32_t k = chain_->arc_begin[n]; !last && k < chain_->arc_begin[n + 1]; ++k) {
        const double p = chain_->arc_probability[k];
        const double* from = entered_.data() + static_cast<std::size_t>(chain_->arc_to[k]) * dims_;
        for (std::size_t d = 0; d < dims_; ++d) to[d] += p * from[d];
      }
    }
    entered_.resize(static_cast<std::size_t>(layer.count) * dims_);
    for (std::int32_t j = 0; j < layer.count; ++j) {
      const double* after = future(t, j);
      double* before = entered_.data() + static_cast<std::size_t>(j) * dims_;
      std::copy_n(after, dims_, before);
      const Label a = chain_->label[layer.first + j];
      for (const Tracked& tracked : tracked_) {
        if (tracked.first < 0 || !pairs_->moves(tracked.rule, a)) continue;
        for (int pair = 0; pair < pairs_->count(tracked.rule); ++pair) {
          const std::int32_t next = pairs_->next(tracked.rule, pair, a);
          before[tracked.first + pair] = next == RulePairs::kAlike       ? 0
                                         : next == RulePairs::kOneBroken ? 1
                                                                         : after[tracked.first + next];
        }
      }
    }
  }
}

// What the state of a rule in a row has to do with that in the heaviest row, at live node j; 1 where it is not known.
double SentenceAutomaton::difference(std::int64_t t, std::int32_t place, int tracked, std::int32_t j) const {
  const Tracked& rule = tracked_[tracked];
  if (rule.first < 0) return 1;
  const State s = table_.states(rows_[place])[tracked], other = table_.states(rows_[heaviest_])[tracked];
  return future(t, j)[rule.first + RulePairs::number(s, other)];
}

// --- forward ---

void SentenceAutomaton::first_layer() {
  table_.clear(tracked_.size());
  place_.clear();
  rows_.clear();
  masses_.clear();
  states_.clear();
  for (const Tracked& tracked : tracked_) states_.push_back(rules_->start(tracked.rule));
  const std::int32_t start = table_.find(states_.data());
  const Chain::Layer live = chain_->layers[0];
  layers_.push_back({0, 0, 0, live.count});
  ++stamp_;
  for (std::int32_t j = 0; j < live.count; ++j) {
    const std::int32_t row = moved_row(start, chain_->label[live.first + j]);
    if (row == kGone) continue;
    const std::int32_t place = arrive(row);
    masses_[static_cast<std::size_t>(place) * live.count + j] += chain_->mass[live.first + j];
  }
  settle(0);
}

// Where a row goes by a label; within one stamp for the same row, so that a label is looked up once.
std::int32_t SentenceAutomaton::moved_row(std::int32_t row, Label label) {
  if (seen_[label] == stamp_) return row_by_label_[label];
  seen_[label] = stamp_;
  std::int32_t& result = row_by_label_[label];
  result = row;
  bool moves = false;
  for (const Tracked& tracked : tracked_) moves = moves || pairs_->moves(tracked.rule, label);
  if (!moves) return result;
  states_.assign(table_.states(row), table_.states(row) + tracked_.size());
  for (std::size_t q = 0; q < tracked_.size(); ++q) {
    states_[q] = rules_->next(tracked_[q].rule, states_[q], label);
    if (states_[q] == RuleTables::kBroken) return result = kGone;
  }
  return result = table_.find(states_.data());
}

std::int32_t SentenceAutomaton::arrive(std::int32_t row) {
  if (static_cast<std::size_t>(row) >= place_.size()) place_.resize(static_cast<std::size_t>(row) + 1, kGone);
  if (place_[row] == kGone) {
    place_[row] = static_cast<std::int32_t>(rows_.size());
    rows_.push_back(row);
    masses_.resize(masses_.size() + static_cast<std::size_t>(layers_.back().live), 0.0);
  }
  return place_[row];
}

bool SentenceAutomaton::next_layer(std::int64_t t) {
  const Chain::Layer live = chain_->layers[t], next = chain_->layers[t + 1];
  last_rows_.swap(rows_);
  for (const std::int32_t row : last_rows_) {
    if (static_cast<std::size_t>(row) < place_.size()) place_[row] = kGone;
  }
  rows_.clear();
  masses_.clear();
  layers_[t].moved = static_cast<std::int64_t>(moved_.size());
  const std::int64_t cells = layers_[t].cells, moved = layers_[t].moved;
  const std::int32_t rows = layers_[t].rows;
  moved_.resize(moved_.size() + static_cast<std::size_t>(rows) * next.count, kGone);
  layers_.push_back({static_cast<std::int64_t>(alpha_.size()), 0, 0, next.count});
  for (std::int32_t i = 0; i < rows; ++i) {
    going_.assign(static_cast<std::size_t>(next.count), 0.0);
    for (std::int32_t j = 0; j < live.count; ++j) {
      const double alpha = alpha_[cells + static_cast<std::int64_t>(i) * live.count + j];
      if (!(alpha > 0)) continue;
      for (std::int32_t k = chain_->arc_begin[live.first + j]; k < chain_->arc_begin[live.first + j + 1]; ++k)
        going_[chain_->arc_to[k]] += alpha * chain_->arc_probability[k];
    }
    ++stamp_;
    for (std::int32_t j = 0; j < next.count; ++j) {
      if (!(going_[j] > 0)) continue;
      const std::int32_t row = moved_row(last_rows_[i], chain_->label[next.first + j]);
      if (row == kGone) continue;
      const std::int32_t place = arrive(row);
      moved_[moved + static_cast<std::int64_t>(i) * next.count + j] = place;
      masses_[static_cast<std::size_t>(place) * next.count + j] += going_[j];
    }
  }
  settle(t + 1);
  return layers_.back().rows > 0;
}

// Forgets, prunes, and puts what is left of the layer where it stays.
void SentenceAutomaton::settle(std::int64_t t) {
  final_.resize(masses_.size());
  for (std::size_t c = 0; c < final_.size(); ++c) final_[c] = static_cast<std::int32_t>(c / layers_[t].live);
  find_heaviest(t);
  if (rows_.size() > 1 && allowance_.forget > 0) forget_rows(t);
  if (!rows_.empty() && allowance_.prune > 0) forget_cells(t);
  compact(t);
}

void SentenceAutomaton::find_heaviest(std::int64_t t) {
  const auto live = static_cast<std::size_t>(layers_[t].live);
  heaviest_ = 0;
  double most = -1;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    double mass = 0;
    for (std::size_t j = 0; j < live; ++j) mass += masses_[i * live + j];
    if (mass > most) heaviest_ = i, most = mass;
  }
}

// Whole rows take over one rule's state from the heaviest row, the cheapest first.
void SentenceAutomaton::forget_rows(std::int64_t t) {
  const std::int32_t live = layers_[t].live;
  double left = allowance_.forget * static_cast<double>(t + 1) - forgotten_;
  offers_.clear();
  const State* common = table_.states(rows_[heaviest_]);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const State* states = table_.states(rows_[i]);
    for (std::size_t q = 0; q < tracked_.size(); ++q) {
      if (states[q] == common[q]) continue;
      const auto place = static_cast<std::int32_t>(i), tracked = static_cast<std::int32_t>(q);
      double price = 0;
      for (std::int32_t j = 0; j < live && price <= left; ++j) {
        const double mass = masses_[i * static_cast<std::size_t>(live) + j];
        if (mass > 0) price += mass * difference(t, place, tracked, j);
      }
      if (price <= left) offers_.push_back({price, place, tracked});
    }
  }
  sort_offers();
  for (const Offer& offer : offers_) {
    if (offer.price > left) break;
    left -= offer.price;
    forgotten_ += offer.price;
    states_.assign(table_.states(rows_[offer.place]), table_.states(rows_[offer.place]) + tracked_.size());
    states_[offer.tracked] = table_.states(rows_[heaviest_])[offer.tracked];
    rows_[offer.place] = table_.find(states_.data());
  }
}

// Single cells go over to the heaviest row, or are pruned, whatever is cheaper, the cheapest first.
void SentenceAutomaton::forget_cells(std::int64_t t) {
  const auto live = static_cast<std::size_t>(layers_[t].live);
  double left = allowance_.prune * static_cast<double>(t + 1) - pruned_;
  offers_.clear();
  const State* common = table_.states(rows_[heaviest_]);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const State* states = table_.states(rows_[i]);
    different_.clear();
    for (std::size_t q = 0; q < tracked_.size(); ++q) {
      if (states[q] != common[q]) different_.push_back(static_cast<int>(q));
    }
    for (std::size_t j = 0; j < live; ++j) {
      const double mass = masses_[i * live + j];
      if (!(mass > 0)) continue;
      double share = different_.empty() ? 1 : 0;
      for (const int q : different_)
        share += difference(t, static_cast<std::int32_t>(i), q, static_cast<std::int32_t>(j));
      const bool goes_over = share < 1;
      const double price = goes_over ? mass * share : mass;
      if (price <= left) offers_.push_back({price, static_cast<std::int32_t>(i * live + j), goes_over});
    }
  }
  sort_offers();
  for (const Offer& offer : offers_) {
    const auto c = static_cast<std::size_t>(offer.place);
    const double price = offer.tracked ? offer.price : masses_[c];  // a cell may have got more since
    if (price > left) continue;
    left -= price;
    pruned_ += price;
    const double mass = std::exchange(masses_[c], 0);
    if (offer.tracked) masses_[heaviest_ * live + c % live] += mass;
    final_[c] = offer.tracked ? static_cast<std::int32_t>(heaviest_) : kGone;
  }
}

void SentenceAutomaton::sort_offers() {
  std::sort(offers_.begin(), offers_.end(), [](const Offer& x, const Offer& y) {
    return x.price != y.price ? x.price < y.price : x.place != y.place ? x.place < y.place : x.tracked < y.tracked;
  });
}

// Rows that have become equal are merged, and empty ones are gone.
void SentenceAutomaton::compact(std::int64_t t) {
  Layer& layer = layers_[t];
  const auto live = static_cast<std::size_t>(layer.live);
  std::vector<std::int32_t>& kept = last_rows_;  // no longer needed
  kept.clear();
  place_.assign(static_cast<std::size_t>(table_.size()), kGone);
  to_.assign(rows_.size(), kGone);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const double* masses = masses_.data() + i * live;
    if (std::none_of(masses, masses + live, [](double x) { return x > 0; })) continue;
    std::int32_t& place = place_[rows_[i]];
    if (place == kGone) {
      place = static_cast<std::int32_t>(kept.size());
      kept.push_back(rows_[i]);
      alpha_.resize(alpha_.size() + live, 0.0);
    }
    to_[i] = place;
    double* cells = alpha_.data() + layer.cells + static_cast<std::size_t>(place) * live;
    for (std::size_t j = 0; j < live; ++j) cells[j] += masses[j];
  }
  layer.rows = static_cast<std::int32_t>(kept.size());
  rows_.swap(kept);
  if (t == 0) return;
  const auto begin = static_cast<std::size_t>(layers_[t - 1].moved);
  for (std::size_t m = begin; m < moved_.size(); ++m) {
    if (moved_[m] == kGone) continue;
    const std::int32_t place = final_[static_cast<std::size_t>(moved_[m]) * live + (m - begin) % live];
    moved_[m] = place == kGone ? kGone : to_[place];
  }
}

// --- backward ---

// going_[j]: `values` of the cell that row i of position t goes to by node j of the position after, `none` without one.
void SentenceAutomaton::later(std::int64_t t, std::int32_t i, const std::vector<double>& values, double none) {
  const Layer& after = layers_[t + 1];
  const std::int32_t* moved = moved_.data() + layers_[t].moved + static_cast<std::int64_t>(i) * after.live;
  going_.resize(static_cast<std::size_t>(after.live));
  for (std::int32_t j = 0; j < after.live; ++j) {
    going_[j] = moved[j] == kGone ? none : values[after.cells + static_cast<std::int64_t>(moved[j]) * after.live + j];
  }
}

void SentenceAutomaton::backward() {
  beta_.assign(alpha_.size(), 0.0);
  for (std::int64_t t = chain_->T() - 1; t >= 0; --t) {
    const Layer& layer = layers_[t];
    const std::int32_t first = chain_->layers[t].first;
    for (std::int32_t i = 0; i < layer.rows; ++i) {
      if (t + 1 < chain_->T()) later(t, i, beta_, 0);
      for (std::int32_t j = 0; j < layer.live; ++j) {
        const std::int64_t c = layer.cells + static_cast<std::int64_t>(i) * layer.live + j;
        if (!(alpha_[c] > 0)) continue;  // pruned, or not accepted at the end
        if (t + 1 == chain_->T()) {
          beta_[c] = 1;
          continue;
        }
        double sum = 0;
        for (std::int32_t k = chain_->arc_begin[first + j]; k < chain_->arc_begin[first + j + 1]; ++k)
          sum += chain_->arc_probability[k] * going_[chain_->arc_to[k]];
        beta_[c] = sum;
      }
    }
  }
}

// --- entropy ---

// P_A is a Markov chain over cells, so −log P_A(y) is a sum over steps, and its mean a sum of local entropies.
double SentenceAutomaton::entropy() {
  find_means();
  entropy_ = 0;
  const Layer& layer = layers_[0];
  for (std::int64_t c = 0; c < static_cast<std::int64_t>(layer.rows) * layer.live; ++c) {
    const double p = alpha_[c] * beta_[c] / mass_;
    if (p > 0) entropy_ += p * (mean_before_[c] + mean_after_[c]);
  }
  return entropy_;
}

void SentenceAutomaton::find_means() {
  mean_before_.assign(alpha_.size(), 0.0);
  mean_after_.assign(alpha_.size(), 0.0);
  // f(cell, cell of the next position, probability of that step)
  const auto each_step = [&](std::int64_t t, const auto& f) {
    const Layer &layer = layers_[t], &after = layers_[t + 1];
    const std::int32_t first = chain_->layers[t].first;
    for (std::int64_t c = layer.cells; c < layer.cells + static_cast<std::int64_t>(layer.rows) * layer.live; ++c) {
      if (!(alpha_[c] * beta_[c] > 0)) continue;
      const auto i = (c - layer.cells) / layer.live;
      const auto j = static_cast<std::int32_t>((c - layer.cells) % layer.live);
      for (std::int32_t k = chain_->arc_begin[first + j]; k < chain_->arc_begin[first + j + 1]; ++k) {
        const std::int32_t to = chain_->arc_to[k], place = moved_[layer.moved + i * after.live + to];
        if (place == kGone) continue;
        const std::int64_t d = after.cells + static_cast<std::int64_t>(place) * after.live + to;
        const double p = chain_->arc_probability[k] * beta_[d] / beta_[c];
        if (p > 0) f(c, d, p);
      }
    }
  };
  for (std::int64_t t = chain_->T() - 2; t >= 0; --t) {
    each_step(t,
              [&](std::int64_t c, std::int64_t d, double p) { mean_after_[c] += p * (mean_after_[d] - std::log(p)); });
  }
  const Layer& layer = layers_[0];
  for (std::int64_t c = 0; c < static_cast<std::int64_t>(layer.rows) * layer.live; ++c) {
    const double p = alpha_[c] * beta_[c] / mass_;
    if (p > 0) mean_before_[c] = -std::log(p);
  }
  for (std::int64_t t = 0; t + 1 < chain_->T(); ++t) {
    each_step(t, [&](std::int64_t c, std::int64_t d, double p) {
      // P(c | d) = P(c) p / P(d)
      const double share = alpha_[c] * beta_[c] * p / (alpha_[d] * beta_[d]);
      mean_before_[d] += share * (mean_before_[c] - std::log(p));
    });
  }
}

}  // namespace regccrf
