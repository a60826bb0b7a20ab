#include "regccrf/automaton.h"

#include <gtest/gtest.h>

#include "automaton/automaton.h"
#include "regccrf/error.h"
#include "regccrf/language.h"

namespace regccrf {
namespace {

// Figure 1 of the paper: labels O, B, I.
Automaton even_spans() {
  return {
      0,
      {1, 0, 1, 0},
      {{0, 0, 0}, {0, 1, 1}, {1, 0, 3}, {1, 1, 2}, {1, 2, 1}, {2, 0, 0}, {2, 1, 1}, {2, 2, 2}, {3, 0, 3}, {3, 1, 2}}};
}

TEST(Measure, CountsStatesArcsNodesAndProducts) {
  const Size size = measure(even_spans());
  EXPECT_EQ(size.states, 4);
  EXPECT_EQ(size.arcs, 10);
  EXPECT_EQ(size.nodes, 10);
  // in × out: state 0 {O}×{O,B}, 1 {B,I}×{O,B,I}, 2 {B,I}×{O,B,I}, 3 {O}×{O,B}
  EXPECT_EQ(size.products, 2 + 6 + 6 + 2);
}

TEST(Measure, CountsEachSourceAndLabelOnce) {
  const Automaton two_targets{0, {1, 1}, {{0, 0, 0}, {0, 0, 1}}};
  EXPECT_EQ(measure(two_targets).arcs, 2);
  EXPECT_EQ(measure(two_targets).nodes, 1);
}

TEST(Normalize, SortsAndRefusesNumbersOutOfRange) {
  Automaton automaton{0, {1}, {{0, 1, 0}, {0, 0, 0}, {0, 1, 0}}};
  normalize(automaton, 2);
  EXPECT_EQ(automaton.arcs, (std::vector<Arc>{{0, 0, 0}, {0, 1, 0}}));
  EXPECT_THROW(normalize(automaton, 1), Error);
  automaton.start = 7;
  EXPECT_THROW(normalize(automaton, 2), Error);
}

TEST(Unambiguous, HoldsForADeterministicAutomaton) {
  EXPECT_TRUE(is_deterministic(even_spans()));
  EXPECT_TRUE(is_unambiguous(even_spans()));
}

TEST(Unambiguous, HoldsForANondeterministicOneWithOnePathEach) {
  // A* A B: which A is the last is known only afterwards
  const Automaton guess{0, {0, 0, 1}, {{0, 0, 0}, {0, 0, 1}, {1, 1, 2}}};
  EXPECT_FALSE(is_deterministic(guess));
  EXPECT_TRUE(is_unambiguous(guess));
}

TEST(Unambiguous, FailsWherePathsMeetAgainOrBothEnd) {
  const Automaton meets{0, {0, 0, 0, 1}, {{0, 0, 1}, {0, 0, 2}, {1, 1, 3}, {2, 1, 3}}};
  EXPECT_FALSE(is_unambiguous(meets));
  const Automaton both_end{0, {0, 1, 1}, {{0, 0, 1}, {0, 0, 2}}};
  EXPECT_FALSE(is_unambiguous(both_end));
}

TEST(Unambiguous, IgnoresStatesThatLeadNowhere) {
  const Automaton dead_end{0, {0, 1, 0}, {{0, 0, 1}, {0, 0, 2}, {2, 0, 2}}};
  EXPECT_TRUE(is_unambiguous(dead_end));
}

TEST(Tracer, SaysWhereASequenceLeavesAndWhatWasPossible) {
  const Automaton automaton = even_spans();
  Tracer tracer(automaton);
  const std::vector<Label> legal = {1, 0, 1, 2}, odd = {1, 0, 0}, broken = {0, 2};
  EXPECT_TRUE(tracer.trace(legal.data(), legal.size()).accepted);
  const Membership ends_early = tracer.trace(odd.data(), odd.size());
  EXPECT_FALSE(ends_early.accepted);
  EXPECT_EQ(ends_early.position, 3u);
  EXPECT_EQ(ends_early.possible, (std::vector<Label>{0, 1}));
  const Membership leaves = tracer.trace(broken.data(), broken.size());
  EXPECT_EQ(leaves.position, 1u);
  EXPECT_EQ(leaves.possible, (std::vector<Label>{0, 1}));
}

}  // namespace
}  // namespace regccrf
