// SentenceAutomaton: for one sequence, a small automaton A that accepts nearly the sequences of L, the base's that obey
// all rules; "nearly" as the sequence's own scores weigh them.
//
// It is the product of a chain (chain.h) and the rules, walked from the first position to the last. A cell is a live
// node with a row, and a row says in which state every rule is. Its number is the probability, under the base, of all
// sequences that come through it and have obeyed the rules so far. What breaks a rule vanishes, which is exact. Three
// things keep A small. Each has a price, the probability of all sequences on which A may differ from L for its sake:
//   not tracking  a rule that hardly anything in this sequence can break;
//   forgetting    a row, or one of its cells, takes over a rule's state from the heaviest row. The price is the
//                 probability that the sequence goes on so that exactly one of the two states accepts
//                 (constraint/rule_pairs.h); that is found first, by a walk backward. Rows that have become equal are
//                 merged;
//   pruning       a cell is left out, where that is cheaper. The price is its number.
// Prices add up in error(). A base path is one sequence, and rules are deterministic, so A has one path for each of its
// sequences, and mass() is the probability of a set of sequences that differs from L by at most error().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "constraint/rule_pairs.h"
#include "inference/rules/chain.h"
#include "inference/rules/row_table.h"

namespace regccrf {

// What may be spent, as probabilities: on rules that are not tracked, and for each position on the others.
struct Allowance {
  double untracked = 0, forget = 0, prune = 0;
};

class SentenceAutomaton {
 public:
  // `which`: the rules that the base does not contain. False where there would be more than `most_cells` cells, or work
  // to match, or where nothing that obeys the rules is left (small()).
  bool make(const Chain& chain, const RuleTables& rules, const RulePairs& pairs, std::span<const int> which,
            const Allowance& allowance, std::int64_t most_cells);

  bool small() const { return small_; }
  double mass() const { return mass_; }
  double error() const { return error_; }  // the chain's own loss included
  std::int64_t cells() const { return static_cast<std::int64_t>(alpha_.size()); }
  int most_rows() const;

  // After backward(): visit_nodes(t, f) calls f(label, P_A(the node)) for live nodes of position t; visit_arcs(t, f)
  // calls f(label, next label, P_A(both)) for arcs from t to t + 1. A label may come several times. mass() > 0.
  void backward();
  template <class Visit>
  void visit_nodes(std::int64_t t, const Visit& visit) const;
  template <class Visit>
  void visit_arcs(std::int64_t t, const Visit& visit);

  // A sequence from P_A; uniform(t) gives numbers in [0, 1). `y`: [T]
  template <class Uniform>
  void draw(const Uniform& uniform, Label* y) const;

  // The entropy of P_A. With it, for visit_nodes and visit_arcs of the covariances with −log P_A(y) in the place of
  // probabilities: deviation_node(t, f), deviation_arc(t, f).
  double entropy();
  template <class Visit>
  void visit_node_covariances(std::int64_t t, const Visit& visit) const;
  template <class Visit>
  void visit_arc_covariances(std::int64_t t, const Visit& visit);

 private:
  struct Layer {
    std::int64_t cells;  // the first of [rows, live]
    std::int64_t moved;  // the first of [rows, live of the next position]
    std::int32_t rows, live;
  };
  static constexpr std::int32_t kGone = -1;

  void track(std::span<const int> which, double allowed);
  double untracked_price(int rule);
  void look_ahead();
  void first_layer();
  bool next_layer(std::int64_t t);
  std::int32_t arrive(std::int32_t row);  // a row's place in the layer that is being made
  std::int32_t moved_row(std::int32_t row, Label label);
  void settle(std::int64_t t);
  void find_heaviest(std::int64_t t);
  void forget_rows(std::int64_t t);
  void forget_cells(std::int64_t t);
  void sort_offers();
  void compact(std::int64_t t);
  double difference(std::int64_t t, std::int32_t place, int tracked, std::int32_t j) const;
  const double* future(std::int64_t t, std::int32_t j) const {
    return futures_.data() + static_cast<std::size_t>(chain_->layers[t].first + j) * dims_;
  }
  void later(std::int64_t t, std::int32_t i, const std::vector<double>& values, double none);
  void find_means();

  const Chain* chain_ = nullptr;
  const RuleTables* rules_ = nullptr;
  const RulePairs* pairs_ = nullptr;
  Allowance allowance_;
  bool small_ = true;
  double mass_ = 0, error_ = 0, forgotten_ = 0, pruned_ = 0;

  struct Tracked {
    int rule;
    int first;  // of its pairs among all, −1 where they are not compared
  };
  std::vector<Tracked> tracked_;
  std::size_t dims_ = 0;         // pairs of all tracked rules
  std::vector<double> futures_;  // [live, dims] P(exactly one of the two accepts what comes after the node | the node)
  std::vector<double> entered_;  // [live of a position, dims] the same, before the node's own label
  std::vector<int> by_price_;    // rules
  std::vector<double> prices_;

  RowTable table_;
  std::vector<Layer> layers_;                     // [T]
  std::vector<double> alpha_;                     // [cells] P(the base comes through the cell, all rules obeyed so far)
  std::vector<double> beta_;                      // [cells] P(the rest is accepted by A | the cell)
  std::vector<std::int32_t> moved_;               // places in the next layer, or kGone
  std::vector<double> mean_before_, mean_after_;  // [cells] of −log P_A, of what came before and what comes after
  double entropy_ = 0;

  // Of the layer that is being made.
  std::vector<std::int32_t> rows_;                 // [rows] numbers in the table
  std::vector<double> masses_;                     // [rows, live]
  std::vector<std::int32_t> place_;                // [numbers in the table] in rows_, or kGone
  std::vector<std::int32_t> last_rows_;            // rows_ of the layer before
  std::vector<double> going_;                      // [live of the next position]
  std::vector<std::int32_t> row_by_label_, seen_;  // [K]
  std::int32_t stamp_ = 0;
  struct Offer {
    double price;
    std::int32_t place, tracked;
  };
  std::vector<Offer> offers_;
  std::size_t heaviest_ = 0;              // the row that others become
  std::vector<std::int32_t> final_, to_;  // [rows, live] the row that a cell went over to, or kGone; [rows] its place
  std::vector<int> different_;
  std::vector<State> states_;
};

template <class Visit>
void SentenceAutomaton::visit_nodes(std::int64_t t, const Visit& visit) const {
  const Layer& layer = layers_[t];
  for (std::int32_t j = 0; j < layer.live; ++j) {
    double sum = 0;
    for (std::int32_t i = 0; i < layer.rows; ++i) {
      const std::int64_t c = layer.cells + i * layer.live + j;
      sum += alpha_[c] * beta_[c];
    }
    if (sum > 0) visit(chain_->label[chain_->layers[t].first + j], sum / mass_);
  }
}

template <class Visit>
void SentenceAutomaton::visit_arcs(std::int64_t t, const Visit& visit) {
  const Layer& layer = layers_[t];
  const std::int32_t first = chain_->layers[t].first, next = chain_->layers[t + 1].first;
  for (std::int32_t i = 0; i < layer.rows; ++i) {
    later(t, i, beta_, 0);
    for (std::int32_t j = 0; j < layer.live; ++j) {
      const double alpha = alpha_[layer.cells + i * layer.live + j] / mass_;
      if (!(alpha > 0)) continue;
      for (std::int32_t k = chain_->arc_begin[first + j]; k < chain_->arc_begin[first + j + 1]; ++k) {
        const double p = alpha * chain_->arc_probability[k] * going_[chain_->arc_to[k]];
        if (p > 0) visit(chain_->label[first + j], chain_->label[next + chain_->arc_to[k]], p);
      }
    }
  }
}

template <class Visit>
void SentenceAutomaton::visit_node_covariances(std::int64_t t, const Visit& visit) const {
  const Layer& layer = layers_[t];
  for (std::int64_t c = layer.cells; c < layer.cells + static_cast<std::int64_t>(layer.rows) * layer.live; ++c) {
    const double p = alpha_[c] * beta_[c] / mass_;
    if (!(p > 0)) continue;
    const auto j = static_cast<std::int32_t>((c - layer.cells) % layer.live);
    visit(chain_->label[chain_->layers[t].first + j], p * (mean_before_[c] + mean_after_[c] - entropy_));
  }
}

template <class Visit>
void SentenceAutomaton::visit_arc_covariances(std::int64_t t, const Visit& visit) {
  const Layer &layer = layers_[t], &after = layers_[t + 1];
  const std::int32_t first = chain_->layers[t].first, next = chain_->layers[t + 1].first;
  for (std::int32_t i = 0; i < layer.rows; ++i) {
    const std::int32_t* moved = moved_.data() + layer.moved + static_cast<std::int64_t>(i) * after.live;
    for (std::int32_t j = 0; j < layer.live; ++j) {
      const std::int64_t c = layer.cells + i * layer.live + j;
      if (!(alpha_[c] * beta_[c] > 0)) continue;
      for (std::int32_t k = chain_->arc_begin[first + j]; k < chain_->arc_begin[first + j + 1]; ++k) {
        const std::int32_t to = chain_->arc_to[k];
        if (moved[to] == kGone) continue;
        const std::int64_t d = after.cells + static_cast<std::int64_t>(moved[to]) * after.live + to;
        const double step = chain_->arc_probability[k] * beta_[d] / beta_[c];
        if (!(step > 0)) continue;
        const double mean = mean_before_[c] - std::log(step) + mean_after_[d] - entropy_;
        visit(chain_->label[first + j], chain_->label[next + to], alpha_[c] * beta_[c] / mass_ * step * mean);
      }
    }
  }
}

template <class Uniform>
void SentenceAutomaton::draw(const Uniform& uniform, Label* y) const {
  std::int32_t i = 0, j = 0;
  for (std::int64_t t = 0; t < chain_->T(); ++t) {
    const Layer& layer = layers_[t];
    const std::int32_t first = chain_->layers[t].first;
    double left = uniform(t);
    if (t == 0) {
      left *= mass_;
      for (std::int64_t c = 0; c < static_cast<std::int64_t>(layer.rows) * layer.live; ++c) {
        const double p = alpha_[c] * beta_[c];
        if (!(p > 0)) continue;
        i = static_cast<std::int32_t>(c / layer.live);
        j = static_cast<std::int32_t>(c % layer.live);
        if ((left -= p) < 0) break;
      }
    } else {
      const Layer& before = layers_[t - 1];
      const std::int32_t from = chain_->layers[t - 1].first + j;
      left *= beta_[before.cells + static_cast<std::int64_t>(i) * before.live + j];
      const std::int32_t* moved = moved_.data() + before.moved + static_cast<std::int64_t>(i) * layer.live;
      for (std::int32_t k = chain_->arc_begin[from]; k < chain_->arc_begin[from + 1]; ++k) {
        const std::int32_t to = chain_->arc_to[k];
        if (moved[to] == kGone) continue;
        const double p =
            chain_->arc_probability[k] * beta_[layer.cells + static_cast<std::int64_t>(moved[to]) * layer.live + to];
        if (!(p > 0)) continue;
        i = moved[to];
        j = to;
        if ((left -= p) < 0) break;
      }
    }
    y[t] = chain_->label[first + j];
  }
}

}  // namespace regccrf
