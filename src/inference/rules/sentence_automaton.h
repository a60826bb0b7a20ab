// SentenceAutomaton: for one sequence, a small automaton A that accepts nearly the sequences of L, the base's that obey
// all rules; "nearly" as the sequence's own scores weigh them.
//
// It is the product of a chain (chain.h) and the rules, walked from the first position to the last. A row says in which
// state every rule is. A cell is a live node with a row; its number is the probability, under the base, of all
// sequences that come through it and have obeyed the rules so far. What breaks a rule vanishes, which is exact. Two
// things keep A small. Each has a price, the probability of all sequences on which A may differ from L for its sake:
//   not tracking  a rule that this sequence hardly breaks. The price is the probability that it does;
//   forgetting    a row is given up, and what is in it goes over to another one. The price is the probability that the
//                 sequence goes on so that exactly one of the two rows accepts (futures.h). Where that is cheaper, what
//                 is in the row is left out altogether, at the price of its probability.
// Prices add up in error(). A base path is one sequence, and rules are deterministic, so A has one path for each of its
// sequences, and mass() is the probability of a set of sequences that differs from L by at most error().
//
// The cells of a node lie side by side, a vector's lanes: a step of the walk adds up rows of numbers (lanes.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "constraint/rule_pairs.h"
#include "inference/rules/chain.h"
#include "inference/rules/futures.h"
#include "inference/rules/row_table.h"

namespace regccrf {

// What may be spent, as probabilities: on rules that are not tracked, and for each position on rows that are given up.
struct Allowance {
  double untracked = 0, forget = 0;
};

class SentenceAutomaton {
 public:
  // A chain with more arcs would be too much work.
  static std::int64_t most_arcs(std::int64_t most_cells);

  // `which`: the rules that the base does not contain. False where there would be more than `most_cells` cells, or work
  // to match, or where nothing that obeys the rules is left (small()).
  bool make(const Chain& chain, const RuleTables& rules, const RulePairs& pairs, std::span<const int> which,
            const Allowance& allowance, std::int64_t most_cells);

  bool small() const { return small_; }
  double mass() const { return mass_; }
  double error() const { return error_; }  // the chain's own loss included
  std::int64_t cells() const { return cells_; }
  int most_rows() const;
  int tracked() const { return static_cast<int>(tracked_.size()); }

  // After backward(): visit_nodes(t, f) calls f(label, P_A(the node)) for live nodes of position t; visit_arcs(t, f)
  // calls f(label, next label, P_A(both)) for arcs from t to t + 1. A label may come several times. mass() > 0.
  void backward();
  template <class Visit>
  void visit_nodes(std::int64_t t, const Visit& visit);
  template <class Visit>
  void visit_arcs(std::int64_t t, const Visit& visit);

  // A sequence from P_A; uniform(t) gives numbers in [0, 1). `y`: [T]
  template <class Uniform>
  void draw(const Uniform& uniform, Label* y) const;

  // The entropy of P_A. With it, as visit_nodes and visit_arcs, covariances with −log P_A(y) in the place of
  // probabilities.
  double entropy();
  template <class Visit>
  void visit_node_covariances(std::int64_t t, const Visit& visit) const;
  template <class Visit>
  void visit_arc_covariances(std::int64_t t, const Visit& visit) const;

 private:
  struct Layer {
    std::size_t cells;  // the first of [live, width]
    std::size_t moved;  // the first of [live, rows of the position before]
    std::int32_t rows, live;
    std::size_t width() const { return padded(static_cast<std::size_t>(rows)); }
  };
  static constexpr std::int32_t kGone = -1;

  // --- making it ---
  double looking_ahead(std::span<const int> which);
  void track(std::span<const int> which);
  void number_events();
  void start();
  void step(std::int64_t t);
  void arrive(std::int64_t t);
  void find_moves(std::int64_t t);
  std::int32_t moved_row(std::int32_t row, Label label);
  std::int32_t place_of(std::int32_t row);
  void propose(std::int64_t t, std::int32_t j, std::int32_t i, std::int32_t place);
  void refuse_new_rows();
  void fill(std::int64_t t);
  void forget_rows(std::int64_t t);
  void find_prices(std::int64_t t);
  void offer(std::int32_t i);
  double price_of_change(std::int32_t i, const State* from, const State* to) const;
  void compact(std::int64_t t);
  void accept_at_end();
  double left(std::int64_t t) const { return allowance_.forget * static_cast<double>(t + 1) - forgotten_; }

  // --- reading it ---
  std::size_t cell(std::int64_t t, std::int32_t j, std::int32_t i) const {
    return layers_[t].cells + static_cast<std::size_t>(j) * layers_[t].width() + static_cast<std::size_t>(i);
  }
  // The row of position t + 1 that row i of position t goes to by node j, or kGone.
  std::int32_t moved(std::int64_t t, std::int32_t i, std::int32_t j) const {
    return moved_[layers_[t + 1].moved + static_cast<std::size_t>(j) * static_cast<std::size_t>(layers_[t].rows) +
                  static_cast<std::size_t>(i)];
  }
  std::int32_t node(std::int64_t t, std::int32_t j) const { return chain_->layers[t].first + j; }
  void find_later(std::int64_t t);
  template <class Visit>
  void visit_cells(std::int64_t t, const Visit& visit) const;
  template <class Visit>
  void visit_steps(std::int64_t t, const Visit& visit) const;
  void find_means();

  const Chain* chain_ = nullptr;
  const RuleTables* rules_ = nullptr;
  const RulePairs* pairs_ = nullptr;
  Allowance allowance_;
  bool small_ = true;
  double mass_ = 0, error_ = 0, forgotten_ = 0;
  std::int64_t cells_ = 0;

  std::vector<int> tracked_;                // rules
  std::vector<int> compared_;               // those whose pairs of states are compared …
  std::vector<int> future_;                 // [tracked] … and its place among them, or −1
  std::vector<std::int32_t> event_;         // [K] number of a label that moves a tracked rule, or kGone
  std::vector<std::vector<int>> moves_of_;  // [events] which of the tracked it moves
  Futures futures_;

  RowTable table_;
  std::vector<Layer> layers_;        // [T]
  std::vector<double> alpha_;        // [cells] P(the base comes through the cell, all rules obeyed so far)
  std::vector<double> beta_;         // [cells] P(the rest is accepted by A | the cell)
  std::vector<std::int32_t> moved_;  // rows of a layer, or kGone
  std::vector<double> later_;        // [live of t + 1, width of t] beta of where the cells of t go
  std::vector<double> dots_;
  std::vector<double> mean_before_, mean_after_;  // [cells] of −log P_A, of what came before and what comes after
  double entropy_ = 0;

  // Of the layer that is being made. Places: rows_ of the layer before, then those that are new.
  std::vector<std::int32_t> rows_;   // numbers in the table
  std::vector<std::int32_t> place_;  // [numbers in the table] in rows_, or kGone
  std::int32_t old_rows_ = 0;
  std::vector<double> going_;  // [live, width of the layer before]
  struct Proposal {  // a cell that would go to a new row, and what it costs if it stays where it was, or is left out
    std::int32_t j, i, place;
    bool stays;
  };
  std::vector<Proposal> proposals_;
  std::vector<double> new_prices_;  // [new rows]
  std::vector<std::int32_t> order_;
  std::vector<std::int32_t> to_;  // [places] in the layer, or kGone
  std::vector<double> row_mass_;  // [places]
  std::vector<double> prices_;    // [places, width of futures]
  std::int32_t heaviest_ = 0;
  struct Offer {
    double price;
    std::int32_t from, to;  // places; kGone: left out
  };
  std::vector<Offer> offers_;
  std::vector<std::uint8_t> fixed_;  // [places] has taken another row in, or is gone
  std::vector<State> states_;
};

template <class Visit>
void SentenceAutomaton::visit_nodes(std::int64_t t, const Visit& visit) {
  const Layer& layer = layers_[t];
  for (std::int32_t j = 0; j < layer.live; ++j) {
    double sum = 0;
    const std::size_t first = cell(t, j, 0);
    for (std::size_t c = first; c < first + layer.width(); ++c) sum += alpha_[c] * beta_[c];
    if (sum > 0) visit(chain_->label[node(t, j)], sum / mass_);
  }
}

template <class Visit>
void SentenceAutomaton::visit_arcs(std::int64_t t, const Visit& visit) {
  const Layer& layer = layers_[t];
  find_later(t);
  for (std::int32_t j = 0; j < layer.live; ++j) {
    const std::int32_t n = node(t, j), begin = chain_->arc_begin[n];
    const auto count = static_cast<std::size_t>(chain_->arc_begin[n + 1] - begin);
    dots_.resize(std::max(dots_.size(), count));
    dot_rows(chain_->arc_to.data() + begin, count, later_.data(), layer.width(), alpha_.data() + cell(t, j, 0),
             dots_.data());
    for (std::size_t k = 0; k < count; ++k) {
      const double p = chain_->arc_probability[begin + k] * dots_[k] / mass_;
      if (p > 0) visit(chain_->label[n], chain_->label[node(t + 1, chain_->arc_to[begin + k])], p);
    }
  }
}

// visit(node of the position, row, cell) for cells that A comes through.
template <class Visit>
void SentenceAutomaton::visit_cells(std::int64_t t, const Visit& visit) const {
  for (std::int32_t j = 0; j < layers_[t].live; ++j) {
    for (std::int32_t i = 0; i < layers_[t].rows; ++i) {
      const std::size_t c = cell(t, j, i);
      if (alpha_[c] * beta_[c] > 0) visit(j, i, c);
    }
  }
}

// visit(cell, node, cell of the next position, its node, probability of that step) for steps that A takes.
template <class Visit>
void SentenceAutomaton::visit_steps(std::int64_t t, const Visit& visit) const {
  visit_cells(t, [&](std::int32_t j, std::int32_t i, std::size_t c) {
    const std::int32_t n = node(t, j);
    for (std::int32_t k = chain_->arc_begin[n]; k < chain_->arc_begin[n + 1]; ++k) {
      const std::int32_t to = chain_->arc_to[k], row = moved(t, i, to);
      if (row == kGone) continue;
      const std::size_t d = cell(t + 1, to, row);
      const double p = chain_->arc_probability[k] * beta_[d] / beta_[c];
      if (p > 0) visit(c, n, d, node(t + 1, to), p);
    }
  });
}

template <class Visit>
void SentenceAutomaton::visit_node_covariances(std::int64_t t, const Visit& visit) const {
  visit_cells(t, [&](std::int32_t j, std::int32_t, std::size_t c) {
    const double mean = mean_before_[c] + mean_after_[c] - entropy_;
    visit(chain_->label[node(t, j)], alpha_[c] * beta_[c] / mass_ * mean);
  });
}

template <class Visit>
void SentenceAutomaton::visit_arc_covariances(std::int64_t t, const Visit& visit) const {
  visit_steps(t, [&](std::size_t c, std::int32_t n, std::size_t d, std::int32_t m, double p) {
    const double mean = mean_before_[c] - std::log(p) + mean_after_[d] - entropy_;
    visit(chain_->label[n], chain_->label[m], alpha_[c] * beta_[c] / mass_ * p * mean);
  });
}

template <class Uniform>
void SentenceAutomaton::draw(const Uniform& uniform, Label* y) const {
  std::int32_t i = 0, j = 0;
  double left = uniform(0) * mass_;
  bool drawn = false;
  visit_cells(0, [&](std::int32_t node, std::int32_t row, std::size_t c) {
    if (drawn) return;
    j = node, i = row;
    drawn = (left -= alpha_[c] * beta_[c]) < 0;
  });
  y[0] = chain_->label[node(0, j)];
  for (std::int64_t t = 1; t < chain_->T(); ++t) {
    const std::int32_t from = node(t - 1, j), before = i;
    left = uniform(t) * beta_[cell(t - 1, j, i)];
    for (std::int32_t k = chain_->arc_begin[from]; k < chain_->arc_begin[from + 1]; ++k) {
      const std::int32_t to = chain_->arc_to[k], row = moved(t - 1, before, to);
      if (row == kGone) continue;
      const double p = chain_->arc_probability[k] * beta_[cell(t, to, row)];
      if (!(p > 0)) continue;
      j = to, i = row;
      if ((left -= p) < 0) break;
    }
    y[t] = chain_->label[node(t, j)];
  }
}

}  // namespace regccrf
