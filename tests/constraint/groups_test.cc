// Groups of states: what the CPU's plan and the GPU's layout both start from.
#include "constraint/groups.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "regccrf/constraint.h"
#include "regccrf/language.h"

namespace regccrf {
namespace {

// At the cost of the CPU, and at that of a GPU.
const GroupCost kCosts[] = {{3, 0}, {32, 1.35}};

void check_groups(const Topology& t, const GroupCost& cost, const std::string& what) {
  std::vector<int> seen(static_cast<std::size_t>(t.Q), 0);
  for (const StateGroup& group : group_states(t, cost)) {
    ASSERT_FALSE(group.states.empty()) << what;
    std::int64_t needed = 0;
    for (const std::int32_t q : group.states) {
      ++seen[static_cast<std::size_t>(q)];
      const auto has = [&](const std::vector<Label>& all, const std::int32_t* label, const std::int32_t* begin) {
        return std::includes(all.begin(), all.end(), label + begin[q], label + begin[q + 1]);
      };
      EXPECT_TRUE(has(group.in_labels, t.arrival_label, t.arrival_begin)) << what << ", state " << q;
      EXPECT_TRUE(has(group.out_labels, t.node_label, t.node_begin)) << what << ", state " << q;
      needed += std::int64_t{t.arrival_begin[q + 1] - t.arrival_begin[q]} * (t.node_begin[q + 1] - t.node_begin[q]);
    }
    const std::size_t padded = group.states.size() * group.in_labels.size() * group.out_labels.size();
    EXPECT_GE(static_cast<std::int64_t>(padded), needed) << what;
    const bool free = cost.most_padding == 0 || group.states.size() == 1;
    EXPECT_TRUE(free || static_cast<double>(padded) <= cost.most_padding * static_cast<double>(needed)) << what;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), t.Q) << what;
}

TEST(Groups, HaveEveryStateOnceWithAllItsLabels) {
  for (const char* name : {"srl", "srl-ewt", "citation-frequent", "address", "bio", "gene"}) {
    const Constraint constraint =
        compile(Language::load(std::string(REGCCRF_SOURCE_DIR "/languages/") + name + ".lang"));
    for (const GroupCost& cost : kCosts) check_groups(constraint.topology(), cost, name);
  }
}

// More classes of states than are compared with each other at once: a chain whose states have labels of their own.
TEST(Groups, AreFoundInLargeAutomata) {
  Automaton automaton;
  const int states = 4000;
  std::vector<std::string> names;
  for (int a = 0; a < states; ++a) names.push_back("l" + std::to_string(a));
  automaton.accepting.assign(states, 0);
  automaton.accepting.back() = 1;
  for (int q = 0; q + 1 < states; ++q) {
    automaton.arcs.push_back({q, q, q + 1});
    automaton.arcs.push_back({q, q + 1, q + 1});
  }
  const Constraint constraint = Constraint::from_automaton(automaton, Labels(names));
  for (const GroupCost& cost : kCosts) check_groups(constraint.topology(), cost, "chain");
}

TEST(Groups, OfStatesWithTheSameLabelsAreOne) {
  const Constraint constraint = Constraint::unconstrained(Labels({"a", "b", "c"}));
  const auto groups = group_states(constraint.topology(), kCosts[0]);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].in_labels, (std::vector<Label>{0, 1, 2}));
}

}  // namespace
}  // namespace regccrf
