// Random patterns with all operators: the language layer against the slow matcher of oracle/matcher.h, on every
// sequence up to length 6 over 3 labels, before and after compiling.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/error.h"
#include "regccrf/language.h"
#include "tests/oracle/automata.h"
#include "tests/oracle/matcher.h"

namespace regccrf {
namespace {

constexpr int pattern_count = 2500;
constexpr int longest = 6;
const std::vector<std::string> names = {"A", "B", "C"};

const oracle::Domain& words() {
  static const oracle::Domain domain = oracle::Domain::words_up_to(longest, 3);
  return domain;
}

struct Sample {
  oracle::Pattern pattern;
  std::string text;
  oracle::Domain::Set matched;  // which of words()
};

Sample sample(int seed) {
  oracle::Random random(static_cast<std::uint64_t>(seed));
  Sample s;
  s.pattern = oracle::random_pattern(random, 3, random.between(1, 4));
  s.text = oracle::print(s.pattern, names, random);
  s.matched = words().matches(s.pattern);
  return s;
}

bool matches_none(const Sample& s) { return std::find(s.matched.begin(), s.matched.end(), true) == s.matched.end(); }

std::string shown(const std::vector<Label>& word) {
  std::string text = "sequence:";
  for (Label label : word) text += " " + names[label];
  return text;
}

// Runs `check(sample, language)` on every pattern; an exception fails that pattern and not the rest. A few patterns
// with repeated complements may outgrow the limits.
template <class Check>
void for_each_pattern(Check check) {
  int outgrown = 0;
  for (int seed = 0; seed < pattern_count; ++seed) {
    const Sample s = sample(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", pattern: " + s.text);
    try {
      check(s, Language::parse(s.text, Labels(names)));
    } catch (const LimitError&) {
      ++outgrown;
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_LE(outgrown, pattern_count / 500);
}

TEST(PatternProperty, MembershipAgreesWithTheMatcher) {
  for_each_pattern([](const Sample& s, const Language& language) {
    for (std::size_t w = 0; w < words().size(); ++w) {
      const bool accepted = language.accepts(words().word(w)).accepted;
      if (accepted != s.matched[w]) {
        ADD_FAILURE() << shown(words().word(w)) << (accepted ? " is accepted" : " is rejected");
        return;
      }
    }
  });
}

TEST(PatternProperty, CompiledConstraintAcceptsTheSameByOnePathEach) {
  for_each_pattern([](const Sample& s, const Language& language) {
    if (matches_none(s)) return;
    const Constraint constraint = compile(language);
    for (std::size_t w = 0; w < words().size(); ++w) {
      const bool accepted = constraint.accepts(words().word(w)).accepted;
      const std::int64_t paths = oracle::count_paths(constraint.automaton(), words().word(w));
      if (accepted != s.matched[w] || paths != (s.matched[w] ? 1 : 0)) {
        ADD_FAILURE() << shown(words().word(w)) << (accepted ? " is accepted" : " is rejected") << " and has " << paths
                      << " paths (" << constraint.method() << ")";
        return;
      }
    }
  });
}

TEST(PatternProperty, MergingStatesKeepsTheLanguage) {
  const Constraint contiguous = compile(Language::parse("B once_contiguous(B) A", Labels(names)));
  EXPECT_TRUE(contiguous.accepts(std::vector<Label>{1, 1, 0}).accepted);
  EXPECT_FALSE(contiguous.accepts(std::vector<Label>{1, 1, 0, 1, 0}).accepted);

  const Automaton cycle{3, {0, 1, 1, 1}, {{0, 0, 1}, {1, 0, 2}, {2, 0, 0}, {3, 0, 0}}};  // all lengths but 1, 4, 7, …
  const Constraint compiled = compile(Language::from_automaton(cycle, Labels({"A"})));
  for (std::size_t n = 0; n < 12; ++n) {
    EXPECT_EQ(compiled.accepts(std::vector<Label>(n, 0)).accepted, n % 3 != 1) << "length " << n;
  }
}

TEST(PatternProperty, CountAgreesWithTheMatcher) {
  for_each_pattern([](const Sample& s, const Language& language) {
    std::vector<int> count(longest + 1, 0);
    for (std::size_t w = 0; w < words().size(); ++w) count[words().word(w).size()] += s.matched[w];
    for (int n = 0; n <= longest; ++n) {
      ASSERT_EQ(language.count(static_cast<std::size_t>(n)), std::to_string(count[n])) << "length " << n;
    }
  });
}

TEST(PatternProperty, EnumerationListsTheMatches) {
  for_each_pattern([](const Sample& s, const Language& language) {
    std::vector<std::vector<Label>> expected;
    for (std::size_t w = 0; w < words().size(); ++w) {
      if (s.matched[w] && words().word(w).size() == 4) expected.push_back(words().word(w));
    }
    ASSERT_EQ(language.enumerate_length(4, words().size()), expected);
  });
}

TEST(PatternProperty, EmptyLanguagesAreErrorsAndOthersHaveAMember) {
  int empty = 0;
  for_each_pattern([&empty](const Sample& s, const Language& language) {
    const std::optional<std::vector<Label>> shortest = language.shortest();
    EXPECT_EQ(language.empty(), !shortest);
    if (shortest) {
      EXPECT_TRUE(oracle::matches(s.pattern, *shortest)) << shown(*shortest);
      EXPECT_EQ(matches_none(s), shortest->size() > longest) << shown(*shortest);
      EXPECT_TRUE(compile(language).accepts(*shortest).accepted);
      return;
    }
    ++empty;
    EXPECT_TRUE(matches_none(s));
    EXPECT_THROW(compile(language), Error);
  });
  EXPECT_GT(empty, 0);
}

// Words are numbered as a heap with three children, so w without its last label is (w - 1) / 3.
std::size_t prefix_of(std::size_t w, std::size_t length) {
  for (std::size_t size = words().word(w).size(); size > length; --size) w = (w - 1) / 3;
  return w;
}

// [words] whether an accepted sequence within the domain begins so.
std::vector<bool> prefixes_of(const oracle::Domain::Set& matched) {
  std::vector<bool> alive = matched;
  for (std::size_t w = words().size(); w-- > 1;) {
    if (alive[w]) alive[(w - 1) / 3] = true;
  }
  return alive;
}

// Sequences that begin like w up to `membership.position` go on as it says, and not as w does.
void expect_true_account(std::size_t w, const Membership& membership, const std::vector<bool>& alive, const Sample& s) {
  const std::vector<Label>& word = words().word(w);
  ASSERT_LE(membership.position, word.size()) << shown(word);
  const std::size_t prefix = prefix_of(w, membership.position);
  const auto is_possible = [&](Label a) {
    return std::find(membership.possible.begin(), membership.possible.end(), a) != membership.possible.end();
  };
  for (Label a = 0; a < 3; ++a) {
    const std::size_t next = prefix * 3 + 1 + static_cast<std::size_t>(a);
    const bool continues = next < words().size() && alive[next];
    ASSERT_TRUE(!continues || is_possible(a)) << shown(word) << ": " << names[a] << " is possible";
  }
  if (membership.position < word.size()) {
    ASSERT_FALSE(is_possible(word[membership.position])) << shown(word);
  }
  ASSERT_TRUE(!membership.possible.empty() || s.matched[prefix]) << shown(word);
}

TEST(PatternProperty, RejectionNamesWhereASequenceLeavesTheLanguage) {
  for_each_pattern([](const Sample& s, const Language& language) {
    if (language.empty()) return;
    const std::vector<bool> alive = prefixes_of(s.matched);
    for (std::size_t w = 0; w < words().size(); w += 7) {
      if (!s.matched[w]) expect_true_account(w, language.accepts(words().word(w)), alive, s);
    }
  });
}

// --- operations on languages ----------------------------------------------------------------------------------------

void expect_same(const Language& language, const oracle::Domain::Set& matched, const std::string& operation) {
  for (std::size_t w = 0; w < words().size(); ++w) {
    ASSERT_EQ(language.accepts(words().word(w)).accepted, matched[w]) << operation << ", " << shown(words().word(w));
  }
}

bool is_subset(const oracle::Domain::Set& small, const oracle::Domain::Set& large) {
  for (std::size_t w = 0; w < words().size(); ++w) {
    if (small[w] && !large[w]) return false;
  }
  return true;
}

oracle::Domain::Set reversed(const oracle::Domain::Set& matched) {
  oracle::Domain::Set set(words().size(), false);
  for (std::size_t w = 0; w < words().size(); ++w) {
    std::size_t backwards = 0;
    for (std::size_t t = words().word(w).size(); t-- > 0;) backwards = backwards * 3 + 1 + words().word(w)[t];
    set[backwards] = matched[w];
  }
  return set;
}

// Runs `check(x, language of x, y, language of y)` on pairs of patterns of moderate size.
template <class Check>
void for_each_pair(Check check) {
  for (int seed = 100000; seed < 100400; ++seed) {
    const Sample x = sample(2 * seed), y = sample(2 * seed + 1);
    SCOPED_TRACE("x: " + x.text + "\ny: " + y.text);
    try {
      check(x, Language::parse(x.text, Labels(names)), y, Language::parse(y.text, Labels(names)));
    } catch (const LimitError&) {
      continue;
    }
  }
}

TEST(LanguageProperty, OperationsAgreeWithTheMatcher) {
  using oracle::Op;
  for_each_pair([](const Sample& x, const Language& lx, const Sample& y, const Language& ly) {
    const auto meaning = [&](Op op) { return words().matches({op, {}, {x.pattern, y.pattern}, 0, 0}); };
    const oracle::Pattern not_y{Op::complement, {}, {y.pattern}, 0, 0};
    expect_same(lx | ly, meaning(Op::either), "union");
    expect_same(lx & ly, meaning(Op::both), "intersection");
    expect_same(lx + ly, meaning(Op::concat), "concatenation");
    expect_same(lx - ly, words().matches({Op::both, {}, {x.pattern, not_y}, 0, 0}), "difference");
    expect_same(!ly, words().matches(not_y), "complement");
    expect_same(lx.star(), words().matches({Op::repeat, {}, {x.pattern}, 0, -1}), "star");
    expect_same(lx.repeat(1, 2), words().matches({Op::repeat, {}, {x.pattern}, 1, 2}), "repetition");
    expect_same(lx.reverse(), reversed(x.matched), "reversal");
  });
}

TEST(LanguageProperty, ComparisonsAgreeWithTheMatcher) {
  for_each_pair([](const Sample& x, const Language& lx, const Sample& y, const Language& ly) {
    EXPECT_TRUE(lx.equals(!!lx));
    EXPECT_TRUE((lx | ly).includes(lx));
    EXPECT_TRUE(lx.includes(lx & ly));
    EXPECT_TRUE(lx.reverse().reverse().equals(lx));
    if (!is_subset(x.matched, y.matched)) {
      EXPECT_FALSE(ly.includes(lx));
      EXPECT_FALSE(lx.equals(ly));
    }
  });
}

}  // namespace
}  // namespace regccrf
