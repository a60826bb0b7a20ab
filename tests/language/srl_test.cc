// languages/srl.lang, the readable text, against the paper's hand-made automaton for the same constraints.
#include <gtest/gtest.h>

#include "regccrf/constraint.h"
#include "regccrf/language.h"
#include "tests/oracle/algorithm1.h"

namespace regccrf {
namespace {

Language srl() { return Language::load(REGCCRF_SOURCE_DIR "/languages/srl.lang"); }

Language by_hand() {
  const oracle::Roles roles = oracle::paper_roles();
  return Language::from_automaton(oracle::algorithm1(roles), oracle::role_labels(roles));
}

TEST(Srl, HasTheLabelsOfThePaper) {
  const Labels labels = srl().labels(), expected = oracle::role_labels(oracle::paper_roles());
  EXPECT_EQ(labels.size(), 47);
  for (const std::string& name : expected.names()) EXPECT_TRUE(labels.find(name)) << name;
}

TEST(Srl, IsTheLanguageOfAlgorithm1) { EXPECT_TRUE(srl().equals(by_hand().with_labels(srl().labels()))); }

TEST(Srl, CompiledIsTheLanguageOfAlgorithm1) {
  const Constraint compiled = compile(srl());
  const Language language = Language::from_automaton(compiled.automaton(), compiled.labels());
  EXPECT_TRUE(language.equals(by_hand().with_labels(compiled.labels())));
}

TEST(Srl, CompilesToNoMoreThanAlgorithm1) {
  const Size size = compile(srl()).size(), hand = measure(oracle::algorithm1(oracle::paper_roles()));
  EXPECT_LE(size.states, hand.states);
  EXPECT_LE(size.arcs, hand.arcs);
  EXPECT_LE(size.nodes, hand.nodes);
  EXPECT_LE(size.products, hand.products);
}

}  // namespace
}  // namespace regccrf
