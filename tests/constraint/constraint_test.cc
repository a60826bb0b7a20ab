#include "regccrf/constraint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "constraint/topology.h"
#include "regccrf/language.h"

namespace regccrf {
namespace {

Constraint compiled(const std::string& pattern) { return compile(Language::parse(pattern)); }

std::string languages(const std::string& name) { return std::string(REGCCRF_SOURCE_DIR) + "/languages/" + name; }

// How many accepting paths each length has; with one path per sequence, the number of sequences.
std::vector<double> paths_by_length(const Automaton& automaton, int longest) {
  std::vector<double> now(automaton.accepting.size()), result;
  now[automaton.start] = 1;
  for (int n = 0; n <= longest; ++n) {
    double sum = 0;
    for (std::size_t q = 0; q < now.size(); ++q) sum += automaton.accepting[q] ? now[q] : 0;
    result.push_back(sum);
    std::vector<double> next(now.size());
    for (const Arc& arc : automaton.arcs) next[arc.to] += now[arc.from];
    now = next;
  }
  return result;
}

// --- choosing the automaton -----------------------------------------------------------------------------------------

TEST(Compile, FindsThePapersSrlAutomatonFromTheReadableText) {
  const Constraint constraint = compile(Language::load(languages("srl.lang")));
  EXPECT_EQ(constraint.labels().size(), 47);
  EXPECT_LE(constraint.size().states, 672);
  EXPECT_LE(constraint.size().arcs, 2'592);
  EXPECT_LE(constraint.size().nodes, 1'312);
  EXPECT_LE(constraint.size().products, 28'768);
}

TEST(Compile, EvenSpansIsFigureOneOfThePaper) {
  const Language language = Language::load(languages("even-spans.lang"));
  const Constraint constraint = compile(language);
  EXPECT_LE(constraint.size().states, 4);
  EXPECT_TRUE(is_unambiguous(constraint.automaton()));
  EXPECT_TRUE(constraint.accepts(language.labels().ids(std::vector<std::string>{"B", "O", "B", "I"})).accepted);
  EXPECT_FALSE(constraint.accepts(language.labels().ids(std::vector<std::string>{"B", "O", "O"})).accepted);
}

TEST(Compile, AnUnambiguousExpressionStaysLinearInItsLength) {
  for (int n : {5, 40, 400}) {
    const Constraint constraint = compiled("(A|B)* A (A|B){" + std::to_string(n) + "}");
    EXPECT_LE(constraint.size().states, n + 3);
    EXPECT_TRUE(is_unambiguous(constraint.automaton()));
  }
}

TEST(Compile, AnUnambiguousOperandOfAnIntersectionStaysSmall) {
  const Constraint constraint = compiled("(A|B)* A (A|B){40} & (A B | B A)*");
  EXPECT_LT(constraint.size().states, 400);
}

TEST(Compile, WhatNothingMakesSmallIsALimitError) {
  Limits limits;
  limits.states = 5'000;
  const Language language = Language::parse(".* A .{40} A .* & (A|B)*");
  EXPECT_THROW(compile(language, limits), LimitError);
  EXPECT_TRUE(language.accepts(std::vector<std::string>(42, "A")).accepted);  // it can still be asked
}

TEST(Compile, AnEmptyLanguageIsAnError) {
  for (const char* pattern : {"A & B", "!(.*) & (A | B)", "any r in {}: {r}"})
    EXPECT_THROW(compiled(pattern), Error) << pattern;
}

TEST(Compile, EachSequenceHasOnePath) {
  for (const char* pattern : {"(A | B | A B)*", "(A* B* A*)*", "(A | A A)* B?", ".* A . B .*", "!(.* A A .*)", "(A?)*",
                              "((A|B) & !A | A){2,4}"}) {
    const Language language = Language::parse(pattern, Labels({"A", "B"}));
    const std::vector<double> paths = paths_by_length(compile(language).automaton(), 8);
    for (std::size_t n = 0; n < paths.size(); ++n) {
      EXPECT_EQ(paths[n], static_cast<double>(language.enumerate_length(n, 100'000).size()))
          << pattern << ", length " << n;
    }
  }
}

TEST(Compile, AnAmbiguousAutomatonFromAFileIsMadeUnambiguous) {
  const Automaton twice{0, {0, 1, 1}, {{0, 0, 1}, {0, 0, 2}, {1, 1, 1}, {2, 1, 2}}};
  const Constraint constraint = compile(Language::from_automaton(twice, Labels({"A", "B"})));
  EXPECT_EQ(constraint.size().states, 2);
}

TEST(Compile, TheSameLanguageAlwaysGivesTheSameAutomaton) {
  const Language language = Language::load(languages("srl.lang"));
  const Constraint one = compile(language), two = compile(Language::load(languages("srl.lang")));
  EXPECT_EQ(one.automaton().arcs, two.automaton().arcs);
}

// --- the constraint itself ------------------------------------------------------------------------------------------

TEST(ConstraintValue, RefusesAnAutomatonThatIsNoConstraint) {
  const Labels labels({"A"});
  EXPECT_THROW(Constraint::from_automaton({0, {0}, {}}, labels), Error);                            // accepts nothing
  EXPECT_THROW(Constraint::from_automaton({0, {0, 1, 1}, {{0, 0, 1}, {0, 0, 2}}}, labels), Error);  // ambiguous
  EXPECT_THROW(Constraint::from_automaton({0, {1, 0}, {{0, 0, 0}}}, labels), Error);                // a useless state
  EXPECT_THROW(Constraint::from_automaton({0, {1}, {{0, 3, 0}}}, labels), Error);  // a label out of range
}

TEST(ConstraintValue, UnconstrainedIsOneState) {
  const Constraint constraint = Constraint::unconstrained(Labels({"A", "B", "C"}));
  EXPECT_EQ(constraint.size().states, 1);
  EXPECT_EQ(constraint.size().products, 9);
}

class ConstraintFileTest : public testing::Test {
 protected:
  ~ConstraintFileTest() override { std::filesystem::remove(path_); }
  std::string contents() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void replace(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string error() const {
    try {
      Constraint::load(path_);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("regccrf_constraint_" + std::to_string(::getpid()))).string();
};

TEST_F(ConstraintFileTest, SavedAndLoadedItIsTheSame) {
  const Constraint saved = compiled("(O | \"B x\" I*)* & at_most(2, \"B x\")");
  saved.save(path_);
  const Constraint loaded = Constraint::load(path_);
  EXPECT_EQ(loaded.automaton().arcs, saved.automaton().arcs);
  EXPECT_EQ(loaded.automaton().accepting, saved.automaton().accepting);
  EXPECT_EQ(loaded.automaton().start, saved.automaton().start);
  EXPECT_EQ(loaded.labels(), saved.labels());
  EXPECT_EQ(loaded.method(), saved.method());
  EXPECT_EQ(loaded.text(), saved.text());
}

TEST_F(ConstraintFileTest, AnyCutIsAnError) {
  compiled("(A | B C)*").save(path_);
  const std::string whole = contents();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    replace(whole.substr(0, length));
    ASSERT_NE(error(), "no error") << length;
  }
}

TEST_F(ConstraintFileTest, AForeignOrNewerFileIsRefusedWithTheReason) {
  replace("this is not a constraint at all");
  EXPECT_NE(error().find("not a safetensors file"), std::string::npos) << error();
  compiled("A*").save(path_);
  std::string newer = contents();
  newer.replace(newer.find("\"version\":\"1\""), 13, "\"version\":\"9\"");
  replace(newer);
  EXPECT_NE(error().find("has version 9"), std::string::npos) << error();
}

TEST_F(ConstraintFileTest, AFailedWriteLeavesTheOldFile) {
  compiled("A*").save(path_);
  EXPECT_THROW(compiled("B*").save(path_ + "/no/such/folder"), Error);
  EXPECT_EQ(Constraint::load(path_).labels().names(), std::vector<std::string>{"A"});
}

// --- the layout -----------------------------------------------------------------------------------------------------

TEST(Topology, ListsEveryArcFromBothSides) {
  const Constraint constraint = compile(Language::load(languages("srl.lang")));
  const Topology& t = constraint.topology();
  std::vector<Arc> by_node, by_arrival;
  for (std::int32_t n = 0; n < t.nodes; ++n) {
    for (std::int32_t i = t.from_begin[n]; i < t.from_begin[n + 1]; ++i) {
      EXPECT_EQ(t.arrival_label[t.from_arrival[i]], t.node_label[n]);
      by_node.push_back({t.node_state[n], t.node_label[n], t.arrival_state[t.from_arrival[i]]});
    }
  }
  for (std::int32_t m = 0; m < t.arrivals; ++m) {
    for (std::int32_t i = t.into_begin[m]; i < t.into_begin[m + 1]; ++i) {
      by_arrival.push_back({t.node_state[t.into_node[i]], t.arrival_label[m], t.arrival_state[m]});
    }
  }
  std::sort(by_node.begin(), by_node.end());
  std::sort(by_arrival.begin(), by_arrival.end());
  EXPECT_EQ(by_node, constraint.automaton().arcs);
  EXPECT_EQ(by_arrival, constraint.automaton().arcs);
}

TEST(Topology, StatesWithEqualLabelsAreNeighbours) {
  const Constraint constraint = compile(Language::load(languages("srl.lang")));
  const Topology& t = constraint.topology();
  using Sets = std::pair<std::vector<Label>, std::vector<Label>>;
  const auto sets = [&](std::int32_t q) {
    return Sets{{t.arrival_label + t.arrival_begin[q], t.arrival_label + t.arrival_begin[q + 1]},
                {t.node_label + t.node_begin[q], t.node_label + t.node_begin[q + 1]}};
  };
  std::set<Sets> seen;
  for (std::int32_t q = 0; q < t.Q; ++q) {
    if (q > 0 && sets(q) == sets(q - 1)) continue;
    EXPECT_TRUE(seen.insert(sets(q)).second) << "state " << q;
  }
}

}  // namespace
}  // namespace regccrf
