// Operands that exclude each other (see clash.h): alone, in pairs, in threes; then whatever is left of all of them when
// each that is not needed has been taken out.
#include "language/clash.h"

#include <algorithm>
#include <functional>

#include "language/algebra.h"
#include "language/build.h"

namespace regccrf {
namespace {

using Chosen = std::vector<std::size_t>;

constexpr std::int64_t kStates = 100'000;
constexpr double kSeconds = 2;
constexpr std::size_t kTriples = 3;

bool is_empty(const std::vector<Conjunct>& conjuncts, const Chosen& chosen, const Budget& budget) {
  std::vector<ExprPtr> parts;
  for (const std::size_t i : chosen) parts.push_back(conjuncts[i].expr);
  return accepts_nothing(build(*intersect(std::move(parts)), budget));
}

// The first choice of `many` out of `count` for which `test` holds; empty if there is none.
Chosen first_choice(std::size_t count, std::size_t many, const std::function<bool(const Chosen&)>& test,
                    Chosen& chosen) {
  if (chosen.size() == many) return test(chosen) ? chosen : Chosen();
  for (std::size_t i = chosen.empty() ? 0 : chosen.back() + 1; i < count; ++i) {
    chosen.push_back(i);
    if (Chosen found = first_choice(count, many, test, chosen); !found.empty()) return found;
    chosen.pop_back();
  }
  return {};
}

Chosen needed_of_all(std::size_t count, const std::function<bool(const Chosen&)>& test) {
  Chosen chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(i);
  for (std::size_t i = count; i-- > 0;) {
    Chosen fewer = chosen;
    std::erase(fewer, i);
    if (!fewer.empty() && test(fewer)) chosen = fewer;
  }
  return chosen;
}

Chosen find_clash(const std::vector<Conjunct>& conjuncts, const Budget& budget) {
  const auto test = [&](const Chosen& chosen) { return is_empty(conjuncts, chosen, budget); };
  for (std::size_t many = 1; many <= std::min(kTriples, conjuncts.size()); ++many) {
    Chosen scratch;
    if (Chosen found = first_choice(conjuncts.size(), many, test, scratch); !found.empty()) return found;
  }
  return needed_of_all(conjuncts.size(), test);
}

}  // namespace

std::string describe_clash(const std::vector<Conjunct>& conjuncts, const Budget& budget) {
  if (conjuncts.empty()) return "";
  Chosen clash;
  try {
    clash = find_clash(conjuncts, budget.at_most_states(kStates).at_most_seconds(kSeconds));
  } catch (const LimitError&) {
    return "";  // it would be good to know, but the language is empty all the same
  }
  std::string text = clash.size() == 1 ? ". No sequence obeys" : ". No sequence obeys all of";
  if (clash.size() == 2) text = ". No sequence obeys both of";
  for (const std::size_t i : clash) text += "\n  " + conjuncts[i].text;
  return text;
}

}  // namespace regccrf
