// Language → Constraint: the cheapest unambiguous automaton (language/unambiguous.cc), laid out for the kernels. A
// conjunction that is too large to be multiplied out is split into a base and rules (language/split.cc).
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "automaton/automaton.h"
#include "constraint/product.h"
#include "constraint/rule.h"
#include "language/language.h"
#include "language/split.h"
#include "regccrf/constraint.h"
#include "regccrf/language.h"

namespace regccrf {
namespace {

// Counts what the constraint will hold, with what laying it out takes, before that is done.
Constraint laid_out(Automaton automaton, const Labels& labels, std::string method, std::string text,
                    const Budget& budget) {
  constexpr std::int64_t bytes_of_arc = 100, bytes_of_state = 250;
  Meter meter(budget, "compile");
  meter.hold(bytes_of_arc * static_cast<std::int64_t>(automaton.arcs.size()) + bytes_of_state * automaton.states());
  return Constraint::from_unambiguous(std::move(automaton), labels, std::move(method), std::move(text));
}

Constraint multiplied_out(const Language& language, const Budget& budget) {
  const Unambiguous& cheapest = language.impl().cheapest(budget);
  return laid_out(cheapest.automaton, language.labels(), cheapest.method, language.text(), budget);
}

// Nothing where there is nothing to keep.
std::optional<Constraint> base_and_rules(const Language::Impl& impl, const Budget& budget) {
  if (impl.expr->kind != Expr::Kind::kIntersect) return std::nullopt;
  std::vector<Conjunct> written = impl.conjuncts;
  written.insert(written.end(), impl.nested.begin(), impl.nested.end());
  Split parts = split(*impl.expr, written, impl.labels, budget);
  if (parts.rules.empty()) return std::nullopt;
  try {
    Unambiguous base = cheapest_unambiguous(*parts.base, budget);
    return Constraint::with_rules(
        laid_out(std::move(base.automaton), impl.labels, std::move(base.method), impl.text, budget),
        std::move(parts.rules));
  } catch (const EmptyLanguage&) {
    return std::nullopt;  // the other way words the error
  }
}

// What the rules beside the base hold: an automaton and a table of moves for each memory.
std::int64_t bytes_of_rules(const Constraint& constraint) {
  std::int64_t bytes = 0;
  for (const Rule& rule : constraint.memory_list()) {
    const std::int64_t moves = std::int64_t{rule.automaton.states()} * constraint.labels().size();
    bytes += bytes_of(rule.automaton) + moves * static_cast<std::int64_t>(sizeof(State));
  }
  return bytes;
}

bool fits(const Constraint& constraint, std::int64_t most_products, const Budget& budget) {
  std::vector<int> all(static_cast<std::size_t>(constraint.memories()));
  std::iota(all.begin(), all.end(), 0);
  Meter meter(budget, "multiply");
  meter.hold(bytes_of_rules(constraint));
  return multiply_within(constraint.base().automaton(), constraint.rule_tables(), all, most_products, budget)
      .has_value();
}

void refuse_empty(const Constraint& constraint, std::int64_t most_products, const Budget& budget) {
  const std::vector<std::string> clash = clashing_rules(constraint, most_products, budget);
  if (clash.empty()) return;
  std::string message = "[compile] the language is empty: no label sequence is legal. No sequence obeys all of";
  for (const std::string& text : clash) message += "\n  " + text;
  throw Error(message);
}

}  // namespace

const Constraint* Language::Impl::with_rules(const Limits& limits) const {
  const std::lock_guard<std::mutex> lock(rules_mutex);
  const Budget budget = this->budget(limits);
  if (!rules_known) {
    kept = base_and_rules(*this, budget);
    rules_known = true;
  }
  if (!kept) return nullptr;
  if (most_products != limits.products) {
    kept_fits = fits(*kept, limits.products, budget);
    most_products = limits.products;
  }
  return kept_fits ? nullptr : &*kept;
}

void Language::Impl::refuse_rules(const char* operation, const Limits& limits) const {
  const Constraint* constraint = with_rules(limits);
  if (!constraint) return;
  throw LimitError("[" + std::string(operation) + "] the language has " + std::to_string(constraint->rules()) +
                   " rules that multiply out to more than " + std::to_string(limits.products) +
                   " products a time step, and this needs one automaton; state fewer rules, or raise the limit with "
                   "--max-products (Limits::products)");
}

Constraint compile(const Language& language, const Limits& limits, Rules rules) {
  const Budget budget = language.impl().budget(limits);
  if (rules == Rules::none) return multiplied_out(language, budget);
  const std::optional<Constraint> kept = base_and_rules(language.impl(), budget);
  if (!kept) return multiplied_out(language, budget);
  if (rules == Rules::automatic && fits(*kept, limits.products, budget)) {
    try {
      return multiplied_out(language, budget);
    } catch (const LimitError&) {
      // The product itself would fit, but no way to it does.
    }
  }
  refuse_empty(*kept, limits.products, budget);
  return *kept;
}

}  // namespace regccrf
