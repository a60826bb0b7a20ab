// Expression → automaton, by positions.
//
// A regular expression becomes its position (Glushkov) automaton: one state per place where a label set is written, and
// an arc wherever one place can follow another. It has no epsilon, is linear in the expression's length, and is
// unambiguous whenever the expression is; where very many places follow very many, they share a state (merge_last).
// Intersections and differences are built by the algebra first and then take part as a piece with many places.
#include "language/build.h"

#include <algorithm>
#include <utility>

#include "automaton/automaton.h"
#include "language/algebra.h"

namespace regccrf {
namespace {

using Kind = Expr::Kind;

// How a piece is entered and left. Its inner arcs are already in the builder.
struct Piece {
  struct Entry {
    const std::vector<Label>* labels;  // any of these leads into …
    State state;
  };
  bool nullable = false;
  std::vector<Entry> first;
  std::vector<State> last;
};

// Arcs in pieces: an array of a gigabyte that doubles is copied for a second, in which nobody looks at the clock.
class ArcList {
 public:
  std::size_t size() const { return size_; }
  Arc operator[](std::size_t i) const { return pieces_[i / kPiece][i % kPiece]; }

  void push_back(Arc arc) {
    if (size_ % kPiece == 0) pieces_.push_back(std::make_unique<Arc[]>(kPiece));
    pieces_.back()[size_++ % kPiece] = arc;
  }

  std::int64_t bytes_with(std::size_t more) const {
    return static_cast<std::int64_t>((size_ + more + kPiece) * sizeof(Arc));
  }

  // All of them in one array. What pieces took goes back to malloc, not always to the system.
  std::vector<Arc> taken(Meter& meter) {
    meter.hold(2 * bytes_with(0));
    std::vector<Arc> arcs;
    arcs.reserve(size_);
    for (std::unique_ptr<Arc[]>& piece : pieces_) {
      const std::size_t length = std::min(kPiece, size_ - arcs.size());
      arcs.insert(arcs.end(), piece.get(), piece.get() + length);
      piece.reset();
      meter.step(kPiece);
    }
    pieces_.clear();
    size_ = 0;
    return arcs;
  }

 private:
  static constexpr std::size_t kPiece = 1 << 12;
  std::vector<std::unique_ptr<Arc[]>> pieces_;
  std::size_t size_ = 0;
};

class Builder {
 public:
  explicit Builder(const Budget& budget) : budget_(budget), meter_(budget, "build") {}

  Automaton automaton(const Expr& expr) {
    if (expr.kind == Kind::kAutomaton) return *expr.automaton;
    if (expr.kind == Kind::kIntersect || expr.kind == Kind::kMinus) return by_algebra(expr);
    const Piece whole = piece(expr);
    const State start = new_state();
    for (const Piece::Entry& entry : whole.first) connect(start, entry);
    Automaton result;
    result.start = start;
    result.accepting.assign(static_cast<std::size_t>(states_), 0);
    for (State q : whole.last) result.accepting[q] = 1;
    result.accepting[start] = whole.nullable;
    result.arcs = arcs_.taken(meter_);
    meter_.hold(2 * bytes_of(result) + 24 * static_cast<std::int64_t>(result.arcs.size()) + 32 * states_);
    sort_arcs(result, budget_);
    return without_useless_states(result, budget_);
  }

 private:
  State new_state() {
    meter_.size(++states_, 0);
    meter_.step();
    return states_ - 1;
  }

  void connect(State from, const Piece::Entry& entry) {
    meter_.hold(arcs_.bytes_with(entry.labels->size()) + kBytesOfPlace * states_);
    for (Label a : *entry.labels) arcs_.push_back({from, a, entry.state});
    if (arcs_.size() < next_check_) return;
    budget_.check_time("build");
    if (static_cast<std::int64_t>(arcs_.size()) > budget_.arcs) drop_repeated();
    meter_.size(states_, static_cast<std::int64_t>(arcs_.size()));
    next_check_ = arcs_.size() + kArcsBetweenChecks;
  }

  // Some may have been written twice.
  void drop_repeated() {
    std::vector<Arc> arcs = arcs_.taken(meter_);
    std::sort(arcs.begin(), arcs.end());
    arcs.erase(std::unique(arcs.begin(), arcs.end()), arcs.end());
    for (const Arc& arc : arcs) arcs_.push_back(arc);
  }

  Piece piece(const Expr& expr) {
    switch (expr.kind) {
      case Kind::kNothing:
        return {};
      case Kind::kEmpty:
        return {true, {}, {}};
      case Kind::kOneOf: {
        const State state = new_state();
        return {false, {{&expr.labels, state}}, {state}};
      }
      case Kind::kConcat: {
        Piece result{true, {}, {}};
        for (const ExprPtr& part : expr.parts) result = followed_by(std::move(result), piece(*part));
        return result;
      }
      case Kind::kUnion: {
        Piece result;
        for (const ExprPtr& part : expr.parts) {
          const Piece option = piece(*part);
          result.nullable |= option.nullable;
          result.first.insert(result.first.end(), option.first.begin(), option.first.end());
          result.last.insert(result.last.end(), option.last.begin(), option.last.end());
        }
        return result;
      }
      case Kind::kRepeat:
        return repeated(expr);
      default:
        return embedded(expr.kind == Kind::kAutomaton ? *expr.automaton : by_algebra(expr));
    }
  }

  // Lets y follow x; y may be x itself.
  void join(Piece& x, const Piece& y) {
    if (many_pairs(x, y)) merge_last(x);
    for (State q : x.last) {
      for (const Piece::Entry& entry : y.first) connect(q, entry);
    }
  }

  bool many_pairs(const Piece& x, const Piece& y) const {
    constexpr std::size_t worth_a_thought = 4'096, times_cheaper = 4;
    std::size_t ways = 0;
    for (const Piece::Entry& entry : y.first) ways += entry.labels->size();
    const std::size_t pairs = x.last.size() * ways;
    return pairs > worth_a_thought && pairs / times_cheaper > arcs_.size() + x.first.size() + ways;
  }

  // One new state takes the part of all last places: whatever leads into one of them leads there too. The paths stay as
  // many as they were, and K types of spans in a row cost O(K) arcs, where each with each would be K².
  void merge_last(Piece& x) {
    std::vector<bool> is_last(static_cast<std::size_t>(states_));
    for (State q : x.last) is_last[q] = true;
    x.last = {new_state()};
    const std::size_t arcs = arcs_.size(), entries = x.first.size();
    for (std::size_t i = 0; i < arcs; ++i) {
      const Arc arc = arcs_[i];
      meter_.step();
      if (is_last[arc.to]) arcs_.push_back({arc.from, arc.label, x.last[0]});
    }
    for (std::size_t i = 0; i < entries; ++i) {
      const Piece::Entry entry = x.first[i];
      if (is_last[entry.state]) x.first.push_back({entry.labels, x.last[0]});
    }
  }

  Piece followed_by(Piece x, Piece y) {
    join(x, y);
    if (x.nullable) x.first.insert(x.first.end(), y.first.begin(), y.first.end());
    if (!y.nullable) x.last.clear();
    x.last.insert(x.last.end(), y.last.begin(), y.last.end());
    x.nullable = x.nullable && y.nullable;
    return x;
  }

  Piece looped(Piece x) {
    join(x, x);
    return x;
  }

  // x{2,4} is x x (x (x)?)?, and x{2,} is x x+: written so, no sequence gets a second path.
  Piece repeated(const Expr& expr) {
    const Expr& part = *expr.parts[0];
    Piece tail{true, {}, {}};
    std::uint32_t copies = expr.least;
    if (expr.most == Expr::kUnbounded) {
      tail = looped(piece(part));
      if (expr.least == 0) tail.nullable = true;
      copies = expr.least == 0 ? 0 : expr.least - 1;
    } else {
      for (std::uint32_t i = expr.least; i < expr.most; ++i) {
        tail = prepended(piece(part), std::move(tail));
        tail.nullable = true;
      }
    }
    for (std::uint32_t i = 0; i < copies; ++i) tail = prepended(piece(part), std::move(tail));
    return tail;
  }

  // followed_by, cheap when the second piece is the long one.
  Piece prepended(Piece x, Piece y) {
    join(x, y);
    if (y.nullable) y.last.insert(y.last.end(), x.last.begin(), x.last.end());
    if (x.nullable) {
      y.first.insert(y.first.end(), x.first.begin(), x.first.end());
    } else {
      y.first = x.first;
    }
    y.nullable = x.nullable && y.nullable;
    return y;
  }

  Piece embedded(const Automaton& automaton) {
    std::vector<State> copy(automaton.accepting.size());
    for (State& q : copy) q = new_state();
    Piece result;
    result.nullable = automaton.accepting[automaton.start];
    for (const Arc& arc : automaton.arcs) {
      const std::vector<Label>* labels = single(arc.label);
      connect(copy[arc.from], {labels, copy[arc.to]});
      if (arc.from == automaton.start) result.first.push_back({labels, copy[arc.to]});
    }
    for (State q = 0; q < automaton.states(); ++q) {
      if (automaton.accepting[q]) result.last.push_back(copy[q]);
    }
    return result;
  }

  const std::vector<Label>* single(Label a) {
    while (singles_.size() <= static_cast<std::size_t>(a)) {
      singles_.push_back(std::make_unique<std::vector<Label>>(1, static_cast<Label>(singles_.size())));
    }
    return singles_[a].get();
  }

  Automaton by_algebra(const Expr& expr) {
    Meter kept(budget_, "build");
    std::vector<Automaton> operands;
    for (const ExprPtr& part : expr.parts) {
      operands.push_back(build(*part, budget_));
      kept.hold_more(bytes_of(operands.back()) + 2 * static_cast<std::int64_t>(sizeof(Automaton)));
    }
    if (expr.kind != Kind::kMinus) return intersection(operands);
    const Automaton rest = difference(operands[0], operands[1], budget_);
    kept.hold_more(bytes_of(rest));
    return reduce(rest, budget_);
  }

  // Operand by operand, reduced on the way; all at once where the first few of them explode without the rest.
  Automaton intersection(const std::vector<Automaton>& operands) {
    constexpr std::int64_t few_states = 5'000;
    try {
      return one_by_one(operands, budget_.at_most_states(few_states));
    } catch (const LimitError&) {
      budget_.check_time("intersect");
    }
    try {
      std::vector<const Automaton*> all;
      for (const Automaton& operand : operands) all.push_back(&operand);
      const Automaton product = intersect_all(all, budget_.at_most_states(2 * few_states));
      Meter kept(budget_, "intersect");
      kept.hold(bytes_of(product));
      return reduce(product, budget_);
    } catch (const LimitError&) {
      return one_by_one(operands, budget_);
    }
  }

  static Automaton one_by_one(const std::vector<Automaton>& operands, const Budget& budget) {
    Meter kept(budget, "intersect");
    Automaton result = operands[0];
    for (std::size_t i = 1; i < operands.size(); ++i) {
      result = intersect(result, operands[i], budget);
      kept.hold(bytes_of(result));
      result = reduce(result, budget);
      kept.hold(bytes_of(result));
    }
    return reduce(result, budget);
  }

  static constexpr std::size_t kArcsBetweenChecks = 10'000;
  static constexpr std::int64_t kBytesOfPlace = 64;  // entries and ends of pieces
  const Budget& budget_;
  Meter meter_;
  State states_ = 0;
  ArcList arcs_;
  std::size_t next_check_ = kArcsBetweenChecks;
  std::vector<std::unique_ptr<std::vector<Label>>> singles_;
};

}  // namespace

Automaton build(const Expr& expr, const Budget& budget) { return Builder(budget).automaton(expr); }

}  // namespace regccrf
