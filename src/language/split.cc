// Which operands grow the product, and which share a memory (see split.h).
#include "language/split.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "automaton/automaton.h"
#include "constraint/product.h"
#include "constraint/rule.h"
#include "language/algebra.h"
#include "language/build.h"

namespace regccrf {
namespace {

constexpr std::int64_t kRuleStates = 1'000;      // an operand with more is part of the base
constexpr std::int64_t kTableEntries = 1 << 20;  // states times labels, likewise
constexpr std::int64_t kBaseStates = 2'000;      // of a product that is tried as a base
constexpr double kGrowth = 1.05;                 // of the base's products, by an operand that is taken into it

struct Operand {
  ExprPtr expr;
  std::string text;
  Automaton dfa;
};

class Splitter {
 public:
  Splitter(const std::vector<Conjunct>& conjuncts, const Labels& labels, const Budget& budget)
      : conjuncts_(conjuncts),
        labels_(labels),
        budget_(budget),
        small_(budget.at_most_states(kBaseStates)),
        kept_(budget, "compile") {}

  Split run(const Expr& expr) {
    std::vector<Operand> candidates;
    for (const ExprPtr& part : expr.parts) {
      std::optional<Automaton> dfa = small_dfa(*part);
      if (dfa) {
        kept_.hold_more(2 * bytes_of(*dfa) + table_bytes(*dfa));
        candidates.push_back({part, "", std::move(*dfa)});
      } else {
        base_.push_back(part);
      }
    }
    take_into_base(candidates);
    for (Operand& operand : candidates) {
      budget_.check_time("compile");
      operand.text = text_of(operand);
      join(std::move(operand));
    }
    Split result;
    result.base = base_.empty() ? all_sequences(labels_.size()) : intersect(base_);
    result.rules = std::move(rules_);
    return result;
  }

 private:
  // Of a rule: the constraint keeps its moves as a table too.
  std::int64_t table_bytes(const Automaton& dfa) const {
    return dfa.states() * std::int64_t{labels_.size()} * static_cast<std::int64_t>(sizeof(State));
  }

  std::optional<Automaton> small_dfa(const Expr& part) const {
    try {
      const Budget few = budget_.at_most_states(kRuleStates);
      Automaton dfa = minimal_dfa(build(part, small_), few);
      if (accepts_nothing(dfa) || dfa.states() * std::int64_t{labels_.size()} > kTableEntries) return std::nullopt;
      return dfa;
    } catch (const LimitError&) {
      return std::nullopt;
    }
  }

  // Moves the operands that do not make the base's product larger out of `candidates`.
  void take_into_base(std::vector<Operand>& candidates) {
    Automaton product = build(*all_sequences(labels_.size()), budget_);
    bool taken = true;
    while (std::exchange(taken, false)) {
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        const std::optional<Automaton> both = product_of(product, candidates[i].dfa);
        if (!both || accepts_nothing(*both)) continue;
        const double before = static_cast<double>(measure(product).products);
        if (static_cast<double>(measure(*both).products) > kGrowth * before) continue;
        product = *both;
        base_.push_back(candidates[i].expr);
        candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(i--));
        taken = true;
      }
    }
  }

  std::optional<Automaton> product_of(const Automaton& x, const Automaton& y) const {
    try {
      return minimal_dfa(regccrf::intersect(x, y, small_), small_);
    } catch (const LimitError&) {
      return std::nullopt;
    }
  }

  std::vector<Label> subject(const Automaton& dfa) const {
    const Rule rule{dfa, {}};
    return RuleTables({&rule, 1}, labels_.size()).subject(0);
  }

  // As it is written; with the labels that it is about where one text stands for several operands.
  std::string text_of(const Operand& operand) const {
    std::string about;
    const std::vector<Label> labels = subject(operand.dfa);
    const std::size_t most = 6;
    for (std::size_t i = 0; i < std::min(most, labels.size()); ++i) about += (i ? " " : "") + labels_.name(labels[i]);
    if (labels.size() > most) about += " …";
    for (const Conjunct& conjunct : conjuncts_) {
      if (same(*conjunct.expr, *operand.expr)) return conjunct.text + (conjunct.bound ? " (for " + about + ")" : "");
    }
    const Conjunct* around = smallest_around(*operand.expr);
    return around ? around->text + " (for " + about + ")" : "the rule about " + about;
  }

  // Of the conjunctions that an operand is part of, the one with the fewest others.
  const Conjunct* smallest_around(const Expr& operand) const {
    const Conjunct* smallest = nullptr;
    for (const Conjunct& conjunct : conjuncts_) {
      const std::vector<ExprPtr>& parts = conjunct.expr->parts;
      if (conjunct.expr->kind != Expr::Kind::kIntersect) continue;
      if (smallest && parts.size() >= smallest->expr->parts.size()) continue;
      const auto is_operand = [&](const ExprPtr& part) { return same(*part, operand); };
      if (std::any_of(parts.begin(), parts.end(), is_operand)) smallest = &conjunct;
    }
    return smallest;
  }

  // To a rule that remembers the same thing, or to none.
  void join(Operand operand) {
    const std::vector<Label> about = subject(operand.dfa);
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      std::vector<Label> common;
      std::set_intersection(about.begin(), about.end(), subjects_[i].begin(), subjects_[i].end(),
                            std::back_inserter(common));
      if (common.empty()) continue;
      std::optional<Automaton> both = product_of(rules_[i].automaton, operand.dfa);
      if (!both || accepts_nothing(*both)) continue;
      if (both->states() > std::max(rules_[i].automaton.states(), operand.dfa.states())) continue;
      rules_[i].automaton = std::move(*both);
      rules_[i].texts.push_back(operand.text);
      subjects_[i] = subject(rules_[i].automaton);
      return;
    }
    rules_.push_back({std::move(operand.dfa), {operand.text}});
    subjects_.push_back(about);
  }

  const std::vector<Conjunct>& conjuncts_;
  const Labels& labels_;
  const Budget& budget_;
  Budget small_;
  Meter kept_;
  std::vector<ExprPtr> base_;
  std::vector<Rule> rules_;
  std::vector<std::vector<Label>> subjects_;  // of rules_
};

}  // namespace

std::optional<Automaton> multiply_within(const Automaton& base, const RuleTables& tables, std::span<const int> which,
                                         std::int64_t most_products, const Budget& budget) {
  try {
    return multiply(base, tables, which, most_products, budget);
  } catch (const LimitError&) {
    budget.check_time("compile");
    return std::nullopt;
  }
}

namespace {

bool clash(const Constraint& base, const RuleTables& tables, const std::vector<int>& which, std::int64_t most,
           const Budget& budget) {
  const std::optional<Automaton> product = multiply_within(base.automaton(), tables, which, most, budget);
  return product && accepts_nothing(*product);
}

}  // namespace

Split split(const Expr& expr, const std::vector<Conjunct>& conjuncts, const Labels& labels, const Budget& budget) {
  return Splitter(conjuncts, labels, budget).run(expr);
}

// The rules that a shortest sequence breaks are added until none is broken, or no sequence is left.
std::vector<std::string> clashing_rules(const Constraint& constraint, std::int64_t most_products,
                                        const Budget& budget) {
  const RuleTables& tables = constraint.rule_tables();
  const Constraint base = constraint.base();
  std::vector<int> which;
  while (true) {
    const std::optional<Automaton> product = multiply_within(base.automaton(), tables, which, most_products, budget);
    if (!product) return {};
    const std::optional<std::vector<Label>> shortest = shortest_sequence(*product);
    if (!shortest) break;
    const std::vector<int> broken = tables.broken(*shortest);
    if (broken.empty()) return {};
    which.insert(which.end(), broken.begin(), broken.end());
    std::sort(which.begin(), which.end());
  }
  for (std::size_t i = which.size(); i-- > 0;) {
    std::vector<int> fewer = which;
    std::erase(fewer, which[i]);
    if (clash(base, tables, fewer, most_products, budget)) which = fewer;
  }
  std::vector<std::string> texts;
  for (const int rule : which) {
    const std::vector<std::string>& of_rule = constraint.memory_list()[static_cast<std::size_t>(rule)].texts;
    texts.insert(texts.end(), of_rule.begin(), of_rule.end());
  }
  return texts;
}

}  // namespace regccrf
