// Rules that are kept beside a base: decoding must give what the language gives when it is multiplied out, and what
// enumeration of all its sequences gives. Random conjunctions of the rules that people write, and random scores.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "inference/rules/decode.h"
#include "inference/rules/products.h"
#include "regccrf/bigram_fst.h"
#include "regccrf/inference.h"
#include "regccrf/language.h"
#include "regccrf/loss.h"
#include "tests/inference/conjunctions.h"
#include "tests/inference/inference_fixture.h"
#include "tests/oracle/enumerate.h"
#include "tests/oracle/random.h"

namespace regccrf {
namespace {

using oracle::Random;

oracle::ScoreKind random_kind(Random& random) {
  const oracle::ScoreKind kinds[] = {oracle::ScoreKind::normal, oracle::ScoreKind::ties, oracle::ScoreKind::steep,
                                     oracle::ScoreKind::holes, oracle::ScoreKind::wide};
  return kinds[random.below(5)];
}

// The paths' labels are legal, their scores those of the oracle, best first.
// Where the scores around one are clearly apart, its labels are the same.
template <class Real>
void expect_paths(const std::vector<oracle::Path>& expected, const std::vector<Path>& actual,
                  const Constraint& multiplied, const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  const auto apart = [&](std::size_t i, std::size_t j) {
    return std::abs(static_cast<double>(expected[i].score - expected[j].score)) >
           1e-3 * std::max(1.0, std::abs(static_cast<double>(expected[i].score)));
  };
  for (std::size_t i = 0; i < actual.size(); ++i) {
    expect_value(expected[i].score, actual[i].score, tolerance<Real>, what);
    EXPECT_TRUE(multiplied.accepts(actual[i].labels)) << what;
    const bool last = i + 1 == expected.size();  // another sequence may follow with the same score
    if (!last && apart(i, i + 1) && (i == 0 || apart(i - 1, i))) {
      EXPECT_EQ(expected[i].labels, actual[i].labels) << what;
    }
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(actual[i].labels, actual[j].labels) << what;
  }
}

template <class Real>
void compare_decoding(const BothWays& both, const oracle::Scores& scores, const Options& options) {
  const oracle::Enumeration all(both.multiplied.automaton(), scores);
  const Instance<Real> instance(scores);
  const std::string what = both.text + ", length " + std::to_string(scores.length);
  const std::vector<oracle::Path> expected = all.k_best(7);
  const Path best = viterbi<Real>(both.kept, instance.view(), options)[0];
  if (expected.empty()) {
    EXPECT_EQ(best.score, -inf) << what;
  } else {
    expect_paths<Real>({expected[0]}, {best}, both.multiplied, what);
    const bool no_tie =
        expected.size() == 1 || expected[0].score - expected[1].score > 1e-3 * std::abs(expected[0].score);
    if (no_tie) {
      EXPECT_EQ(expected[0].labels, best.labels) << what;
    }
  }
  const std::vector<double> score = viterbi_score<Real>(both.kept, instance.view(), options);
  expect_value(expected.empty() ? -inf : expected[0].score, score[0], tolerance<Real>, what);
  expect_paths<Real>(expected, k_best<Real>(both.kept, instance.view(), 7, options)[0], both.multiplied, what);
}

class RandomConjunctions : public ::testing::TestWithParam<int> {};
constexpr int kShards = 10, kLanguages = 550;  // 5,500 languages in all

TEST_P(RandomConjunctions, AreDecodedAsWhenMultipliedOut) {
  Random random(static_cast<std::uint64_t>(GetParam()));
  int with_rules = 0, languages = 0;
  while (languages < kLanguages) {
    const int K = random.between(1, 4);
    const std::optional<BothWays> both = random_language(random, K);
    if (!both) continue;
    ++languages;
    with_rules += both->kept.rules() > 0;
    const oracle::Scores scores =
        oracle::random_scores(random, random_kind(random), random.between(0, 6), K, random.chance(0.5));
    Options options{.impossible = Impossible::allow};
    compare_decoding<float>(*both, scores, options);
    compare_decoding<double>(*both, scores, options);
    options.rules.products = 0;  // no product fits: the best-first search takes over
    compare_decoding<double>(*both, scores, options);
    if (HasFailure()) return;
  }
  EXPECT_GT(with_rules, kLanguages / 3);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomConjunctions, ::testing::Range(0, kShards));

// Label marginals of the whole language, given as emissions: the kept rules must give the oracle's best sum.
TEST(Rules, PosteriorDecodingIsExactForGivenMarginals) {
  Random random(19);
  for (int i = 0; i < 400; ++i) {
    const int K = random.between(2, 4), T = random.between(1, 6);
    const std::optional<BothWays> both = random_language(random, K);
    if (!both) continue;
    const oracle::Scores scores = oracle::random_scores(random, oracle::ScoreKind::normal, T, K, true);
    const Instance<double> instance(scores);
    const oracle::Enumeration all(both->multiplied.automaton(), scores);
    Options options{.impossible = Impossible::allow};
    if (viterbi_score<double>(both->multiplied, instance.view(), options)[0] == -inf) continue;
    std::vector<double> marginals(static_cast<std::size_t>(T * K));
    label_marginals<double>(both->multiplied, instance.view(), marginals, options);
    for (const std::int64_t products : {std::int64_t{1'000'000}, std::int64_t{0}}) {
      options.rules.products = products;
      const Constraints constraints(both->kept);
      const Scores<double> view = instance.view();
      const Batch<double> batch("test", constraints, view, options, KeptRules::obeyed);
      MaxModel model(view);
      for (auto* flat : {&model.g, &model.start, &model.end}) std::fill(flat->begin(), flat->end(), 0.0);
      Decoder<double> decoder(batch, model);
      const Sequence<double> sequence{0, T, K, marginals.data(), 0, 1, nullptr};
      std::vector<Label> labels(static_cast<std::size_t>(T));
      Arena arena;
      ASSERT_TRUE(decoder.path(sequence, arena, labels.data())) << both->text;
      EXPECT_TRUE(both->multiplied.accepts(labels)) << both->text;
      expect_value(all.best_posterior_score(), static_cast<double>(all.posterior_score(labels)), 1e-9, both->text);
    }
  }
}

TEST(Rules, MembershipIsThatOfTheWholeLanguage) {
  Random random(77);
  for (int i = 0; i < 300; ++i) {
    const std::optional<BothWays> both = random_language(random, 3);
    if (!both) continue;
    const Constraint loaded = Constraint::from_bytes(both->kept.to_bytes());
    EXPECT_EQ(loaded.rules(), both->kept.rules());
    for (int j = 0; j < 30; ++j) {
      std::vector<Label> sequence(static_cast<std::size_t>(random.below(7)));
      for (Label& a : sequence) a = random.below(3);
      const Membership membership = both->kept.accepts(sequence);
      ASSERT_EQ(membership.accepted, both->multiplied.accepts(sequence).accepted) << both->text;
      EXPECT_EQ(loaded.accepts(sequence).accepted, membership.accepted);
      if (membership.accepted) continue;
      EXPECT_GE(membership.position, both->multiplied.accepts(sequence).position) << both->text;
    }
  }
}

// Far too many rules to be multiplied out: 3^30 states of memory.
TEST(Rules, AnyNumberOfThemCompilesAndDecodes) {
  std::string text = ".*";
  std::vector<std::string> names;
  const int K = 30;
  for (int a = 0; a < K; ++a) {
    names.push_back("F" + std::to_string(a));
    text += " & once_contiguous(" + names.back() + ")";
  }
  const Constraint constraint = compile(Language::parse(text, Labels(names)));
  EXPECT_EQ(constraint.rules(), K);
  EXPECT_EQ(constraint.memories(), K);
  Random random(5);
  for (int i = 0; i < 20; ++i) {
    const oracle::Scores scores = oracle::random_scores(random, oracle::ScoreKind::normal, 12, K, true);
    const Instance<float> instance(scores);
    const Path path = viterbi<float>(constraint, instance.view())[0];
    EXPECT_TRUE(constraint.accepts(path.labels));
    Options search;
    search.rules.products = 0;
    EXPECT_NEAR(viterbi<float>(constraint, instance.view(), search)[0].score, path.score, 1e-3);
  }
}

TEST(Rules, ThatRememberTheSameThingAreOne) {
  const Language language =
      Language::parse("(O | A | C | R)* & at_most(1, A) & before(A, C) & requires(R, A) & at_most(1, O)");
  const Constraint constraint = compile(language, {}, Rules::all);
  EXPECT_EQ(constraint.rules(), 4);
  EXPECT_EQ(constraint.memories(), 2);
}

TEST(Rules, StayMultipliedOutWhereThatIsSmall) {
  const Language language = Language::parse("[O A B C D]* & at_most(1, A) & at_most(1, B)");
  EXPECT_EQ(compile(language).rules(), 0);
  Limits few;
  few.products = 30;
  EXPECT_EQ(compile(language, few).rules(), 2);
  EXPECT_EQ(compile(language, few, Rules::none).rules(), 0);
}

TEST(Rules, AreNamedWhereASequenceBreaksThem) {
  const Constraint constraint = compile(Language::parse("(O | A | B)* & at_most(1, A) & before(A, B)"), {}, Rules::all);
  const std::vector<Label> sequence = {0, 1, 0, 1};
  const Membership membership = constraint.accepts(sequence);
  EXPECT_FALSE(membership.accepted);
  EXPECT_EQ(membership.position, 3u);
  EXPECT_EQ(membership.possible, (std::vector<Label>{0, 2}));
  EXPECT_NE(membership.rule.find("at_most(1, A)"), std::string::npos) << membership.rule;
}

TEST(Rules, OfADefinitionAreNamedByTheSmallestOneAroundThem) {
  const char* text =
      "once = all x in {A B C}: once_contiguous(x)\nmore = once & before(A, B)\nlanguage = [A B C]* & more & "
      "at_most(2, C)";
  const Constraint constraint = compile(Language::parse(text), {}, Rules::all);
  const Labels& labels = constraint.labels();
  const auto rule_of = [&](std::vector<std::string> names) { return constraint.accepts(labels.ids(names)).rule; };
  EXPECT_EQ(constraint.rules(), 5);
  EXPECT_NE(rule_of({"A", "C", "A"}).find("once (for A)"), std::string::npos) << rule_of({"A", "C", "A"});
  EXPECT_NE(rule_of({"B"}).find("before(A, B)"), std::string::npos) << rule_of({"B"});
}

TEST(Rules, ThatClashAreNamed) {
  try {
    compile(Language::parse("(O | A | B)* & at_least(2, A) & once_contiguous(B) & at_most(1, A)"), {}, Rules::all);
    FAIL() << "an empty language was compiled";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("at_least(2, A)"), std::string::npos) << message;
    EXPECT_NE(message.find("at_most(1, A)"), std::string::npos) << message;
    EXPECT_EQ(message.find("once_contiguous"), std::string::npos) << message;
  }
}

TEST(Rules, WhatNeedsOneAutomatonSaysSo) {
  const Constraint constraint = compile(Language::parse("[O A B C]* & at_most(1, A)"), {}, Rules::all);
  ASSERT_EQ(constraint.rules(), 1);
  EXPECT_THROW(constraint.automaton(), Error);
  EXPECT_THROW(constraint.topology(), Error);
  const std::vector<float> h(12), g(16);
  const Scores scores(h, g);
  std::vector<float> states(12);
  EXPECT_THROW(state_marginals(constraint, scores, std::span(states)), Error);
  EXPECT_THROW(curvature<float>(constraint, scores, {}, {}), Error);
  EXPECT_THROW(write_bigram_fst(constraint, "never written"), Error);
  EXPECT_EQ(constraint.base().rules(), 0);
}

// Flat scores and rules that exclude nearly everything: the search must end with a word about what it found.
TEST(Rules, PastTheLimitOfWorkAnErrorGivesTheBound) {
  std::string text = ".*";
  std::vector<std::string> names;
  for (int a = 0; a < 12; ++a) {
    names.push_back("F" + std::to_string(a));
    text += " & exactly(2, " + names.back() + ")";
  }
  const Constraint constraint = compile(Language::parse(text, Labels(names)), {}, Rules::all);
  Random random(3);
  const Instance<double> instance(oracle::random_scores(random, oracle::ScoreKind::normal, 24, 12, false));
  Options options;
  options.rules = {.products = 0, .cells = 1000};
  try {
    viterbi<double>(constraint, instance.view(), options);
    FAIL() << "a thousand cells were enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::limit);
    const std::string message = error.what();
    EXPECT_NE(message.find("none has more than"), std::string::npos) << message;
    EXPECT_NE(message.find("best legal sequence found is F"), std::string::npos) << message;
  }
}

// One label serves one rule here, so that sixteen rules need sixteen labels; no search is to find that out.
TEST(Rules, SaySoWhereASequenceIsTooShortForThem) {
  std::string text = ".*";
  for (int a = 0; a < 16; ++a) text += " & exactly(1, " + std::string(1, static_cast<char>('A' + a)) + ")";
  const Constraint constraint = compile(Language::parse(text, first_letters(17)), {}, Rules::all);
  const oracle::Scores scores = [] {
    Random random(4);
    return oracle::random_scores(random, oracle::ScoreKind::normal, 15, 17, false);
  }();
  const Instance<double> instance(scores);
  Options options;
  options.rules = {.products = 0, .cells = 100};
  try {
    viterbi<double>(constraint, instance.view(), options);
    FAIL() << "fifteen labels were enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::impossible);
    EXPECT_STREQ(error.what(), "[viterbi] sequence 0 has length 15, and the rules ask for 16 labels at least");
  }
  EXPECT_EQ(log_z<double>(constraint, instance.view())[0], -inf);
}

// What is kept for other sentences changes no answer: under a smaller limit a product is too large, or it is not,
// whether or not a caller who allows more was here before.
TEST(Rules, LimitsOfProductsDoNotDependOnEarlierCalls) {
  const std::string text = "(. .)* & at_most(2, D) & exactly(2, C) & ordered(C, D) & before(A, C)";
  const Constraint used = compile(Language::parse(text, first_letters(4)), {}, Rules::all);
  std::vector<int> all;
  for (int rule = 0; rule < used.memories(); ++rule) all.push_back(rule);
  EXPECT_FALSE(product_with(used, all, 1'000'000).too_large);
  for (int most = 1; most < 200; ++most) {
    const Constraint fresh = Constraint::from_bytes(used.to_bytes());
    EXPECT_EQ(product_with(used, all, most).too_large, product_with(fresh, all, most).too_large) << most;
  }
}

}  // namespace
}  // namespace regccrf
