// Language → Constraint: the cheapest unambiguous automaton (language/unambiguous.cc), laid out for the kernels. A
// conjunction that is too large to be multiplied out is split into a base and rules (language/split.cc).
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "constraint/product.h"
#include "constraint/rule.h"
#include "language/language.h"
#include "language/split.h"
#include "regccrf/constraint.h"
#include "regccrf/language.h"

namespace regccrf {
namespace {

Constraint multiplied_out(const Language& language, const Budget& budget) {
  const Unambiguous& cheapest = language.impl().cheapest(budget);
  return Constraint::from_automaton(cheapest.automaton, language.labels(), cheapest.method, language.text());
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
        Constraint::from_automaton(std::move(base.automaton), impl.labels, std::move(base.method), impl.text),
        std::move(parts.rules));
  } catch (const EmptyLanguage&) {
    return std::nullopt;  // the other way words the error
  }
}

bool fits(const Constraint& constraint, std::int64_t most_products) {
  std::vector<int> all(static_cast<std::size_t>(constraint.memories()));
  std::iota(all.begin(), all.end(), 0);
  return multiply(constraint.base().automaton(), constraint.rule_tables(), all, most_products).has_value();
}

void refuse_empty(const Constraint& constraint, std::int64_t most_products) {
  const std::vector<std::string> clash = clashing_rules(constraint, most_products);
  if (clash.empty()) return;
  std::string message = "[compile] the language is empty: no label sequence is legal. No sequence obeys all of";
  for (const std::string& text : clash) message += "\n  " + text;
  throw Error(message);
}

}  // namespace

const Constraint* Language::Impl::with_rules(const Limits& limits) const {
  const std::lock_guard<std::mutex> lock(rules_mutex);
  if (!rules_known) {
    kept = base_and_rules(*this, budget_of(limits));
    rules_known = true;
  }
  if (!kept) return nullptr;
  if (most_products != limits.products) {
    kept_fits = fits(*kept, limits.products);
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
  const Budget budget = budget_of(limits);
  if (rules == Rules::none) return multiplied_out(language, budget);
  const std::optional<Constraint> kept = base_and_rules(language.impl(), budget);
  if (!kept) return multiplied_out(language, budget);
  if (rules == Rules::automatic && fits(*kept, limits.products)) {
    try {
      return multiplied_out(language, budget);
    } catch (const LimitError&) {
      // The product itself would fit, but no way to it does.
    }
  }
  refuse_empty(*kept, limits.products);
  return *kept;
}

}  // namespace regccrf
