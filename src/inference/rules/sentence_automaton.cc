// The walk that makes a sentence's automaton (see sentence_automaton.h).
#include "inference/rules/sentence_automaton.h"

#include <algorithm>
#include <numeric>

namespace regccrf {
namespace {

constexpr std::int64_t kProductsOfACell = 512;  // of looking ahead, for each cell that is allowed
constexpr std::int64_t kMostArcs = std::int64_t{1} << 30;

}  // namespace

std::int64_t SentenceAutomaton::most_arcs(std::int64_t most_cells) {
  return std::min(most_cells, kMostArcs / kProductsOfACell) * kProductsOfACell;
}

bool SentenceAutomaton::make(const Chain& chain, const RuleTables& rules, const RulePairs& pairs,
                             std::span<const int> which, const Allowance& allowance, std::int64_t most_cells) {
  chain_ = &chain;
  rules_ = &rules;
  pairs_ = &pairs;
  allowance_ = allowance;
  mass_ = forgotten_ = 0;
  cells_ = 0;
  small_ = false;
  error_ = chain.lost;
  layers_.clear();
  alpha_.clear();
  moved_.clear();
  if (chain.too_large || looking_ahead(which) > kProductsOfACell * static_cast<double>(most_cells)) return false;
  track(which);
  number_events();
  start();
  for (std::int64_t t = 0; t < chain.T(); ++t) {
    if (t > 0) step(t);
    arrive(t);
    small_ = layers_.back().rows == 0;
    if (small_ || cells_ > most_cells) return false;
  }
  small_ = true;
  accept_at_end();
  error_ += forgotten_;
  return true;
}

int SentenceAutomaton::most_rows() const {
  std::int32_t most = 0;
  for (const Layer& layer : layers_) most = std::max(most, layer.rows);
  return most;
}

void SentenceAutomaton::accept_at_end() {
  const std::int64_t t = chain_->T() - 1;
  const Layer& last = layers_.back();
  for (std::int32_t i = 0; i < last.rows; ++i) {
    const State* states = table_.states(rows_[i]);
    bool accepted = true;
    for (std::size_t q = 0; q < tracked_.size(); ++q) accepted = accepted && rules_->accepts(tracked_[q], states[q]);
    for (std::int32_t j = 0; j < last.live; ++j) {
      double& alpha = alpha_[cell(t, j, i)];
      if (accepted) mass_ += alpha;
      if (!accepted) alpha = 0;
    }
  }
}

// --- which rules ---

// Products of looking ahead. Where nothing may be spent there is no use in that.
double SentenceAutomaton::looking_ahead(std::span<const int> which) {
  double pairs = 1;
  compared_.clear();
  for (const int rule : which) {
    if (!pairs_->compared(rule) || !(allowance_.forget > 0)) continue;
    compared_.push_back(rule);
    pairs += pairs_->count(rule);
  }
  return pairs * static_cast<double>(chain_->arc_to.size());
}

// The rules that are broken least are not tracked, as many as the allowance pays for; what is left of it is for
// forgetting.
void SentenceAutomaton::track(std::span<const int> which) {
  futures_.find(*chain_, *pairs_, compared_, Futures::Pairs::with_free);
  new_prices_.clear();
  order_.resize(compared_.size());
  std::iota(order_.begin(), order_.end(), 0);
  for (std::size_t i = 0; i < compared_.size(); ++i)
    new_prices_.push_back(futures_.broken(static_cast<int>(i), rules_->start(compared_[i])));
  std::stable_sort(order_.begin(), order_.end(), [&](int x, int y) { return new_prices_[x] < new_prices_[y]; });
  double spent = 0;
  tracked_.assign(which.begin(), which.end());
  for (const std::int32_t i : order_) {
    if (spent + new_prices_[i] > allowance_.untracked) break;
    spent += new_prices_[i];
    tracked_.erase(std::find(tracked_.begin(), tracked_.end(), compared_[i]));
  }
  error_ += spent;
  allowance_.forget += (allowance_.untracked - spent) / static_cast<double>(chain_->T());
  std::erase_if(compared_, [&](int rule) { return !std::binary_search(tracked_.begin(), tracked_.end(), rule); });
  future_.clear();
  for (const int rule : tracked_) {
    const auto at = std::lower_bound(compared_.begin(), compared_.end(), rule);
    future_.push_back(at != compared_.end() && *at == rule ? static_cast<int>(at - compared_.begin()) : -1);
  }
  futures_.find(*chain_, *pairs_, compared_, Futures::Pairs::own);
}

void SentenceAutomaton::number_events() {
  event_.assign(static_cast<std::size_t>(rules_->labels()), kGone);
  moves_of_.clear();
  for (Label a = 0; a < rules_->labels(); ++a) {
    std::vector<int> moves;
    for (const int rule : pairs_->moved_by(a)) {
      const auto at = std::lower_bound(tracked_.begin(), tracked_.end(), rule);
      if (at != tracked_.end() && *at == rule) moves.push_back(static_cast<int>(at - tracked_.begin()));
    }
    if (moves.empty()) continue;
    event_[a] = static_cast<std::int32_t>(moves_of_.size());
    moves_of_.push_back(std::move(moves));
  }
}

// --- a step ---

// Before the first position there is one row, from which the first nodes are reached.
void SentenceAutomaton::start() {
  table_.clear(tracked_.size(), moves_of_.size());
  place_.clear();
  states_.clear();
  for (const int rule : tracked_) states_.push_back(rules_->start(rule));
  rows_.assign(1, table_.find(states_.data()));
  const Chain::Layer live = chain_->layers[0];
  going_.assign(static_cast<std::size_t>(live.count) * padded(1), 0.0);
  for (std::int32_t j = 0; j < live.count; ++j)
    going_[static_cast<std::size_t>(j) * padded(1)] = chain_->mass[live.first + j];
}

// From the cells of position t − 1 over all arcs.
void SentenceAutomaton::step(std::int64_t t) {
  const Layer& before = layers_[t - 1];
  const std::size_t width = before.width();
  going_.assign(static_cast<std::size_t>(chain_->layers[t].count) * width, 0.0);
  for (std::int32_t j = 0; j < before.live; ++j) {
    const std::int32_t n = node(t - 1, j), begin = chain_->arc_begin[n];
    add_to_rows(chain_->arc_probability.data() + begin, chain_->arc_to.data() + begin,
                static_cast<std::size_t>(chain_->arc_begin[n + 1] - begin), alpha_.data() + cell(t - 1, j, 0), width,
                going_.data());
  }
}

// What arrives at position t gets its rows; rows that are cheap to give up are given up.
void SentenceAutomaton::arrive(std::int64_t t) {
  layers_.push_back({alpha_.size(), moved_.size(), 0, chain_->layers[t].count});
  old_rows_ = static_cast<std::int32_t>(rows_.size());
  find_moves(t);
  refuse_new_rows();
  fill(t);
  to_.resize(rows_.size());
  std::iota(to_.begin(), to_.end(), 0);
  forget_rows(t);
  compact(t);
}

void SentenceAutomaton::find_moves(std::int64_t t) {
  const Layer& layer = layers_[t];
  const std::size_t width = padded(static_cast<std::size_t>(old_rows_));
  moved_.resize(layer.moved + static_cast<std::size_t>(layer.live) * static_cast<std::size_t>(old_rows_));
  std::int32_t* moved = moved_.data() + layer.moved;
  place_.resize(static_cast<std::size_t>(table_.size()), kGone);
  for (std::int32_t i = 0; i < old_rows_; ++i) place_[rows_[i]] = i;
  proposals_.clear();
  new_prices_.clear();
  for (std::int32_t j = 0; j < layer.live; ++j, moved += old_rows_) {
    const Label label = chain_->label[node(t, j)];
    const bool quiet = event_[label] == kGone;
    for (std::int32_t i = 0; i < old_rows_; ++i) {
      moved[i] = i;
      if (quiet || !(going_[static_cast<std::size_t>(j) * width + static_cast<std::size_t>(i)] > 0)) continue;
      const std::int32_t row = moved_row(rows_[i], label);
      moved[i] = row == RowTable::kNone ? kGone : place_of(row);
      if (moved[i] >= old_rows_) propose(t, j, i, moved[i]);
    }
  }
  for (const std::int32_t row : rows_) place_[row] = kGone;
}

// Where a row goes by a label, or kNone.
std::int32_t SentenceAutomaton::moved_row(std::int32_t row, Label label) {
  const std::int32_t event = event_[label];
  const std::int32_t known = table_.move(row, event);
  if (known != RowTable::kUnknown) return known;
  states_.assign(table_.states(row), table_.states(row) + tracked_.size());
  bool broken = false;
  for (const int q : moves_of_[event]) {
    states_[q] = rules_->next(tracked_[q], states_[q], label);
    broken = broken || states_[q] == RuleTables::kBroken;
  }
  const std::int32_t to = broken ? RowTable::kNone : table_.find(states_.data());
  return table_.move(row, event) = to;
}

std::int32_t SentenceAutomaton::place_of(std::int32_t row) {
  if (static_cast<std::size_t>(row) >= place_.size()) place_.resize(static_cast<std::size_t>(row) + 1, kGone);
  if (place_[row] == kGone) {
    place_[row] = static_cast<std::int32_t>(rows_.size());
    rows_.push_back(row);
    new_prices_.push_back(0);
  }
  return place_[row];
}

// A cell that wants a new row. It could also stay in its row, as if the label had not moved a rule.
void SentenceAutomaton::propose(std::int64_t t, std::int32_t j, std::int32_t i, std::int32_t place) {
  const std::size_t width = padded(static_cast<std::size_t>(old_rows_));
  const double mass = going_[static_cast<std::size_t>(j) * width + static_cast<std::size_t>(i)];
  const State *here = table_.states(rows_[i]), *there = table_.states(rows_[place]);
  double difference = 0;
  for (const int q : moves_of_[event_[chain_->label[node(t, j)]]]) {
    if (here[q] == there[q]) continue;
    difference += future_[q] < 0 ? 1 : futures_.after(node(t, j))[futures_.place(future_[q], here[q], there[q])];
  }
  const bool stays = difference < 1;
  proposals_.push_back({j, i, place, stays});
  new_prices_[place - old_rows_] += stays ? mass * difference : mass;
}

// New rows that are not worth their price, the cheapest first, for half of what may be spent.
void SentenceAutomaton::refuse_new_rows() {
  const std::int64_t t = static_cast<std::int64_t>(layers_.size()) - 1;
  const double most = left(t) / 2;
  const auto count = static_cast<std::int32_t>(new_prices_.size());
  const double surely = most / std::max(count, 1);  // all of these together cost less
  double spent = 0;
  to_.assign(static_cast<std::size_t>(count), 0);
  order_.clear();
  for (std::int32_t k = 0; k < count; ++k) {
    if (new_prices_[k] <= surely) {
      spent += new_prices_[k];
      to_[k] = kGone;
    } else if (new_prices_[k] <= most) {
      order_.push_back(k);
    }
  }
  std::sort(order_.begin(), order_.end(), [&](std::int32_t x, std::int32_t y) {
    return new_prices_[x] != new_prices_[y] ? new_prices_[x] < new_prices_[y] : x < y;
  });
  for (const std::int32_t k : order_) {
    if (spent + new_prices_[k] > most) break;
    spent += new_prices_[k];
    to_[k] = kGone;
  }
  forgotten_ += spent;
  std::int32_t places = old_rows_;
  for (std::int32_t k = 0; k < count; ++k) {
    if (to_[k] == kGone) continue;
    rows_[places] = rows_[old_rows_ + k];
    to_[k] = places++;
  }
  rows_.resize(static_cast<std::size_t>(places));
  std::int32_t* moved = moved_.data() + layers_[t].moved;
  for (const Proposal& cell : proposals_) {
    const std::int32_t place = to_[cell.place - old_rows_];
    moved[cell.j * old_rows_ + cell.i] = place != kGone ? place : cell.stays ? cell.i : kGone;
  }
}

// The layer's cells, from what is going to it.
void SentenceAutomaton::fill(std::int64_t t) {
  Layer& layer = layers_[t];
  layer.rows = static_cast<std::int32_t>(rows_.size());
  const std::size_t width = layer.width(), old_width = padded(static_cast<std::size_t>(old_rows_));
  alpha_.resize(layer.cells + static_cast<std::size_t>(layer.live) * width, 0.0);
  const std::int32_t* moved = moved_.data() + layer.moved;
  for (std::int32_t j = 0; j < layer.live; ++j, moved += old_rows_) {
    const double* from = going_.data() + static_cast<std::size_t>(j) * old_width;
    double* to = alpha_.data() + layer.cells + static_cast<std::size_t>(j) * width;
    if (event_[chain_->label[node(t, j)]] == kGone) {
      std::copy_n(from, old_rows_, to);
      continue;
    }
    for (std::int32_t i = 0; i < old_rows_; ++i) {
      if (moved[i] != kGone) to[moved[i]] += from[i];
    }
  }
}

// --- forgetting ---

// Rows go over to others, the cheapest first. One that has taken another in stays: its price is no longer known.
void SentenceAutomaton::forget_rows(std::int64_t t) {
  const auto rows = static_cast<std::int32_t>(rows_.size());
  find_prices(t);
  const double most = left(t);
  offers_.clear();
  for (std::int32_t i = 0; i < rows; ++i) {
    if (i != heaviest_ || !(row_mass_[i] > 0)) offer(i);
  }
  for (const std::int32_t row : rows_) place_[row] = kGone;
  std::sort(offers_.begin(), offers_.end(),
            [](const Offer& x, const Offer& y) { return x.price != y.price ? x.price < y.price : x.from < y.from; });
  fixed_.assign(static_cast<std::size_t>(rows), 0);
  double spent = 0;
  for (const Offer& offer : offers_) {
    if (spent + offer.price > most) break;
    if (fixed_[offer.from] || (offer.to != kGone && to_[offer.to] != offer.to)) continue;
    spent += offer.price;
    to_[offer.from] = offer.to;
    if (offer.to != kGone) fixed_[offer.to] = 1;
  }
  forgotten_ += spent;
}

// Masses of rows, the heaviest, and for each what its rules' states mean to the future.
void SentenceAutomaton::find_prices(std::int64_t t) {
  const Layer& layer = layers_[t];
  const std::size_t width = layer.width(), dims = futures_.width();
  const double* alpha = alpha_.data() + layer.cells;
  row_mass_.assign(width, 0.0);
  for (std::int32_t j = 0; j < layer.live; ++j) {
    for (std::size_t i = 0; i < width; ++i) row_mass_[i] += alpha[static_cast<std::size_t>(j) * width + i];
  }
  heaviest_ = static_cast<std::int32_t>(std::max_element(row_mass_.begin(), row_mass_.end()) - row_mass_.begin());
  place_.resize(static_cast<std::size_t>(table_.size()), kGone);
  for (std::int32_t i = 0; i < layer.rows; ++i) place_[rows_[i]] = i;
  if (layer.rows == 1 || dims == 0) return;
  prices_.resize(static_cast<std::size_t>(layer.rows) * dims);
  for (std::int32_t i = 0; i < layer.rows; ++i) {
    if (i == heaviest_) continue;
    sum_all_rows(alpha + i, width, static_cast<std::size_t>(layer.live), futures_.after(node(t, 0)), dims,
                 prices_.data() + static_cast<std::size_t>(i) * dims);
  }
}

// What it costs at the least to give a row up: it goes over to the heaviest row, or to one that differs from it by one
// rule, which is then as in the heaviest; or it is left out.
void SentenceAutomaton::offer(std::int32_t i) {
  Offer best{row_mass_[i], i, kGone};
  if (best.price > 0) {
    const State *states = table_.states(rows_[i]), *common = table_.states(rows_[heaviest_]);
    const double whole = price_of_change(i, states, common);
    if (whole < best.price) best = {whole, i, heaviest_};
    states_.assign(states, states + tracked_.size());
    for (std::size_t q = 0; q < tracked_.size(); ++q) {
      if (states[q] == common[q]) continue;
      states_[q] = common[q];
      const std::int32_t row = table_.look_up(states_.data());
      const std::int32_t place =
          row == RowTable::kNone || static_cast<std::size_t>(row) >= place_.size() ? kGone : place_[row];
      const double price = place == kGone ? best.price : price_of_change(i, states, states_.data());
      if (price < best.price) best = {price, i, place};
      states_[q] = states[q];
    }
  }
  offers_.push_back(best);
}

double SentenceAutomaton::price_of_change(std::int32_t i, const State* from, const State* to) const {
  const double* prices = prices_.data() + static_cast<std::size_t>(i) * futures_.width();
  double sum = 0;
  for (std::size_t q = 0; q < tracked_.size(); ++q) {
    if (from[q] == to[q]) continue;
    sum += future_[q] < 0 ? row_mass_[i] : prices[futures_.place(future_[q], from[q], to[q])];
  }
  return sum;
}

// Rows that are given up leave the layer.
void SentenceAutomaton::compact(std::int64_t t) {
  Layer& layer = layers_[t];
  const std::size_t places = rows_.size(), width = layer.width();
  std::int32_t rows = 0;
  order_.resize(places);
  for (std::size_t i = 0; i < places; ++i) {
    if (to_[i] != static_cast<std::int32_t>(i)) continue;
    rows_[rows] = rows_[i];
    order_[i] = rows++;
  }
  cells_ += static_cast<std::int64_t>(rows) * layer.live;
  if (static_cast<std::size_t>(rows) == places) return;
  for (std::int32_t& place : to_) place = place == kGone ? kGone : order_[place];
  rows_.resize(static_cast<std::size_t>(rows));
  layer.rows = rows;
  const std::size_t less = layer.width();
  for (std::int32_t j = 0; j < layer.live; ++j) {
    double *from = alpha_.data() + layer.cells + static_cast<std::size_t>(j) * width,
           *to = alpha_.data() + layer.cells + static_cast<std::size_t>(j) * less;
    row_mass_.assign(from, from + width);
    std::fill_n(to, less, 0.0);
    for (std::size_t i = 0; i < places; ++i) {
      if (to_[i] != kGone) to[to_[i]] += row_mass_[i];
    }
  }
  alpha_.resize(layer.cells + static_cast<std::size_t>(layer.live) * less);
  for (std::size_t m = layer.moved; m < moved_.size(); ++m) moved_[m] = moved_[m] == kGone ? kGone : to_[moved_[m]];
}

}  // namespace regccrf
