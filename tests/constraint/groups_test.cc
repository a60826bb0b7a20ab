// Groups of states: what the CPU's plan and the GPU's layout both start from.
#include "constraint/groups.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "regccrf/constraint.h"
#include "regccrf/language.h"
#include "tests/oracle/random.h"

namespace regccrf {
namespace {

void check_groups(const Topology& t, const std::string& what) {
  std::vector<int> seen(static_cast<std::size_t>(t.Q), 0);
  std::int64_t products = 0;
  for (const StateGroup& group : group_states(t)) {
    ASSERT_FALSE(group.states.empty()) << what;
    for (const std::int32_t q : group.states) {
      ++seen[static_cast<std::size_t>(q)];
      const auto has = [&](const std::vector<Label>& all, const std::int32_t* label, const std::int32_t* begin) {
        return std::includes(all.begin(), all.end(), label + begin[q], label + begin[q + 1]);
      };
      EXPECT_TRUE(has(group.in_labels, t.arrival_label, t.arrival_begin)) << what << ", state " << q;
      EXPECT_TRUE(has(group.out_labels, t.node_label, t.node_begin)) << what << ", state " << q;
    }
    products += static_cast<std::int64_t>(group.states.size() * group.in_labels.size() * group.out_labels.size());
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), t.Q) << what;
  EXPECT_GE(products, t.products) << what;
}

TEST(Groups, HaveEveryStateOnceWithAllItsLabels) {
  for (const char* name : {"srl", "srl-ewt", "citation", "address", "bio", "gene"}) {
    const Constraint constraint =
        compile(Language::load(std::string(REGCCRF_SOURCE_DIR "/languages/") + name + ".lang"));
    check_groups(constraint.topology(), name);
  }
}

TEST(Groups, OfStatesWithTheSameLabelsAreOne) {
  const Constraint constraint = Constraint::unconstrained(Labels({"a", "b", "c"}));
  const auto groups = group_states(constraint.topology());
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].in_labels, (std::vector<Label>{0, 1, 2}));
}

}  // namespace
}  // namespace regccrf
