// Breadth first over tuples (base state, states of the rules) (see product.h).
#include "constraint/product.h"

#include <vector>

#include "automaton/automaton.h"
#include "automaton/tuple_table.h"

namespace regccrf {
namespace {

constexpr std::int64_t kTrimmingBytesOfArc = 32;  // of sorting and of taking states away

class Walk {
 public:
  Walk(const Automaton& base, const RuleTables& rules, std::span<const int> which, std::int64_t most_products,
       const Budget& budget)
      : base_(base),
        begin_(arcs_by_state(base)),
        rules_(rules),
        which_(which),
        most_(most_products),
        meter_(budget, "multiply") {}

  std::optional<Automaton> run() {
    std::vector<State> start{base_.start};
    for (const int rule : which_) start.push_back(rules_.start(rule));
    find(start);
    for (State q = 0; q < result_.states(); ++q) {
      if (!leave(q)) return std::nullopt;
    }
    meter_.hold(bytes_held(0) + kTrimmingBytesOfArc * static_cast<std::int64_t>(result_.arcs.size()));
    sort_arcs(result_);
    return without_useless_states(result_);
  }

 private:
  // Every arc out of state q; false past the limit.
  bool leave(State q) {
    const TupleTable::Tuple tuple = tuples_[q];
    const std::vector<State> from(tuple.begin(), tuple.end());
    std::vector<State> to(from.size());
    Label last = -1;
    for (std::int64_t i = begin_[from[0]]; i < begin_[from[0] + 1]; ++i) {
      const Arc& arc = base_.arcs[i];
      to[0] = arc.to;
      meter_.step(static_cast<std::int64_t>(to.size()));
      if (!move_rules(from, arc.label, to)) continue;
      out_[q] += arc.label != last;
      last = arc.label;
      const State r = find(to);
      result_.arcs.push_back({q, arc.label, r});
      arrive(r, arc.label);
    }
    left_ = q;
    products_ += out_[q] * in_[q];
    return products_ <= most_;
  }

  bool move_rules(const std::vector<State>& from, Label label, std::vector<State>& to) const {
    for (std::size_t i = 0; i < which_.size(); ++i) {
      to[i + 1] = rules_.next(which_[i], from[i + 1], label);
      if (to[i + 1] == RuleTables::kBroken) return false;
    }
    return true;
  }

  // A label that r has not been entered by before adds a product for each label out of r.
  void arrive(State r, Label label) {
    std::uint64_t& word = entered_[static_cast<std::size_t>(r) * words() + static_cast<std::size_t>(label) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (label % 64);
    if (word & bit) return;
    word |= bit;
    ++in_[r];
    if (r <= left_) products_ += out_[r];
  }

  std::size_t words() const { return (static_cast<std::size_t>(rules_.labels()) + 63) / 64; }

  State find(const std::vector<State>& tuple) {
    meter_.hold(bytes_held(tuple.size()));
    const auto [state, is_new] = tuples_.find(tuple);
    if (!is_new) return state;
    bool accepting = base_.accepting[tuple[0]] != 0;
    for (std::size_t i = 0; i < which_.size(); ++i) accepting = accepting && rules_.accepts(which_[i], tuple[i + 1]);
    result_.accepting.push_back(accepting);
    in_.push_back(0);
    out_.push_back(0);
    entered_.resize(entered_.size() + words());
    return state;
  }

  // While a tuple of this length is added.
  std::int64_t bytes_held(std::size_t length) const {
    return bytes_with(result_.arcs) + bytes_with(result_.accepting) + tuples_.bytes_with(length) + bytes_with(in_) +
           bytes_with(out_) + bytes_with(entered_, words());
  }

  const Automaton& base_;
  std::vector<std::int64_t> begin_;
  const RuleTables& rules_;
  std::span<const int> which_;
  std::int64_t most_, products_ = 0;
  Meter meter_;
  State left_ = -1;  // the last state whose arcs are all there
  Automaton result_;
  TupleTable tuples_;
  std::vector<std::int64_t> in_, out_;  // [Q] labels into and out of a state
  std::vector<std::uint64_t> entered_;  // [Q, words] bits: the labels into a state
};

}  // namespace

std::optional<Automaton> multiply(const Automaton& base, const RuleTables& rules, std::span<const int> which,
                                  std::int64_t most_products, const Budget& budget) {
  return Walk(base, rules, which, most_products, budget).run();
}

}  // namespace regccrf
