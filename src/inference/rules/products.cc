// A table of products by the set of their rules and the limit (see products.h). It is emptied when it has grown large:
// a rare event, after which the sets that are still needed come back.
#include "inference/rules/products.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/deferred.h"
#include "constraint/product.h"

namespace regccrf {
namespace {

constexpr std::int64_t kMostKept = 20'000'000;  // products plus arcs, of all that is kept

// The limit belongs to it: what is too large on the way may be small in the end, and no answer may depend on whether a
// caller who allows more was here before.
using Key = std::pair<std::int64_t, std::vector<int>>;

struct Table {
  std::mutex mutex;
  std::map<Key, RuleProduct> kept;
  std::int64_t cost = 0;
};

RuleProduct make(const Constraint& constraint, const std::vector<int>& which, std::int64_t most_products) {
  std::optional<Automaton> automaton =
      multiply(constraint.base().automaton(), constraint.rule_tables(), which, most_products);
  if (!automaton) return {true, {}};
  const bool nothing = automaton->arcs.empty() && !automaton->accepting[automaton->start];
  if (nothing) return {false, {}};
  return {false, Constraint::from_unambiguous(std::move(*automaton), constraint.labels(), "base and rules")};
}

}  // namespace

RuleProduct product_with(const Constraint& constraint, const std::vector<int>& which, std::int64_t most_products) {
  // The table changes under its own lock; Deferred hands out what it keeps as const.
  Table& table = *constraint.products().get<std::shared_ptr<Table>>([] { return std::make_shared<Table>(); });
  const Key key{most_products, which};
  {
    const std::lock_guard lock(table.mutex);
    const auto at = table.kept.find(key);
    if (at != table.kept.end()) return at->second;
  }
  RuleProduct product = make(constraint, which, most_products);
  const std::lock_guard lock(table.mutex);
  table.cost += product.constraint ? product.constraint->size().cost() : 1;
  if (table.cost > kMostKept) {
    table.kept.clear();
    table.cost = product.constraint ? product.constraint->size().cost() : 1;
  }
  table.kept.insert_or_assign(key, product);
  return product;
}

}  // namespace regccrf
