// Sums under rules that are kept beside a base: every certificate must hold. Random conjunctions of the rules that
// people write, random scores, and the enumeration of all sequences as the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

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

// Peaked as a trained model's, or flat, or far apart, with −inf among them, with ties.
oracle::Scores random_scores(Random& random, int T, int K) {
  const oracle::ScoreKind kinds[] = {oracle::ScoreKind::normal, oracle::ScoreKind::ties, oracle::ScoreKind::steep,
                                     oracle::ScoreKind::holes, oracle::ScoreKind::wide};
  if (random.chance(0.5)) return oracle::random_scores(random, kinds[random.below(5)], T, K, random.chance(0.5));
  oracle::Scores scores = oracle::random_scores(random, oracle::ScoreKind::normal, T, K, false);
  for (double& h : scores.emissions) h *= 4;
  return scores;
}

// What a certificate promises, and the tolerance of the arithmetic.
template <class Real>
double log_bound(double gap, oracle::Real value) {
  return std::log1p(gap) + tolerance<Real> * std::max(1.0, static_cast<double>(std::fabs(value)));
}

double coin_entropy(double p) {
  if (p <= 0) return 0;
  if (p >= 0.5) return std::log(2.0);
  return -p * std::log(p) - (1 - p) * std::log1p(-p);
}

template <class Real>
class Case {
 public:
  Case(const BothWays& both, const oracle::Scores& scores, double max_gap)
      : both_(both),
        all_(both.multiplied.automaton(), scores),
        instance_(scores),
        view_(instance_.view()),
        T_(scores.length),
        K_(scores.labels),
        what_(both.text + ", length " + std::to_string(T_) + ", max_gap " + std::to_string(max_gap)) {
    options_.max_gap = max_gap;
    options_.impossible = Impossible::allow;
    options_.gaps = gap_;
    options_.outside = OutsideGold::skip;
  }

  void check(Random& random) {
    check_log_z();
    if (all_.log_z() == -inf || T_ == 0) return;
    check_marginals();
    check_gold(random);
    check_partial(random);
    check_mass();
    check_entropy();
    check_posterior();
    check_samples();
  }

 private:
  double gap() {
    EXPECT_LE(gap_[0], *options_.max_gap) << what_;
    return gap_[0];
  }
  // Of partial_nll, whose two sums have a certificate each.
  double two_gaps() {
    EXPECT_LE(gap_[0], *options_.max_gap * (2 + *options_.max_gap)) << what_;
    return gap_[0];
  }
  template <class Number>
  static std::vector<oracle::Real> subtract(const std::vector<oracle::Real>& x, const std::vector<Number>& y) {
    std::vector<oracle::Real> z;
    for (std::size_t i = 0; i < x.size(); ++i) z.push_back(x[i] - static_cast<oracle::Real>(y[i]));
    return z;
  }
  void expect_gradients(const oracle::Counts& expected, double bound, const std::string& name) {
    expect_all(expected.labels, dh_, bound + tolerance<Real>, what_ + " " + name + " emissions");
    expect_all(expected.bigrams, dg_, (T_ - 1) * bound + T_ * tolerance<Real>, what_ + " " + name + " transitions");
    if (!instance_.start.empty()) {
      expect_all(expected.start, ds_, bound + tolerance<Real>, what_ + " " + name + " start");
      expect_all(expected.end, de_, bound + tolerance<Real>, what_ + " " + name + " end");
    }
  }
  Gradients<Real> gradients() {
    dh_.assign(instance_.emissions.size(), 7);
    dg_.assign(instance_.transitions.size(), 7);
    ds_.assign(instance_.start.size(), 7);
    de_.assign(instance_.end.size(), 7);
    return {.emissions = dh_, .transitions = dg_, .start = ds_, .end = de_};
  }

  void check_log_z() {
    const double z = log_z<Real>(both_.kept, view_, options_)[0];
    if (all_.log_z() == -inf) {
      EXPECT_EQ(z, -inf) << what_;
      return;
    }
    EXPECT_NEAR(z, static_cast<double>(all_.log_z()), log_bound<Real>(gap(), all_.log_z())) << what_;
  }

  void check_marginals() {
    const oracle::Counts expected = all_.marginals();
    std::vector<Real> labels(instance_.emissions.size());
    label_marginals<Real>(both_.kept, view_, labels, options_);
    expect_all(expected.labels, labels, gap() + tolerance<Real>, what_ + " marginals");
    std::vector<Real> pairs(static_cast<std::size_t>(T_ * K_ * K_), 7);
    bigram_marginals<Real>(both_.kept, view_, pairs, options_);
    std::vector<oracle::Real> padded = expected.pairs;
    padded.resize(pairs.size());
    expect_all(padded, pairs, gap() + tolerance<Real>, what_ + " bigrams");
  }

  void check_gold(Random& random) {
    const auto& paths = all_.paths();
    const std::vector<Label>& gold = paths[random.below(static_cast<int>(paths.size()))].labels;
    const Loss loss = nll<Real>(both_.kept, view_, gold, gradients(), options_);
    const oracle::Real expected = all_.nll(gold);
    if (loss.skipped[0]) {
      EXPECT_EQ(expected, inf) << what_;
      return;
    }
    EXPECT_NEAR(loss.values[0], static_cast<double>(expected), log_bound<Real>(gap(), all_.log_z())) << what_;
    expect_gradients(all_.nll_gradient(gold), gap(), "nll");
  }

  void check_partial(Random& random) {
    std::vector<std::uint8_t> allowed(instance_.emissions.size());
    for (auto& x : allowed) x = random.chance(0.7);
    const oracle::Real expected = all_.partial_nll(allowed);
    const Loss loss = partial_nll<Real>(both_.kept, view_, allowed, gradients(), options_);
    if (std::isinf(expected)) {
      EXPECT_TRUE(loss.skipped[0]) << what_;
      return;
    }
    EXPECT_NEAR(loss.values[0], static_cast<double>(expected), log_bound<Real>(two_gaps(), all_.log_z()) * 2) << what_;
    expect_gradients(all_.partial_nll_gradient(allowed), two_gaps(), "partial");
  }

  void check_mass() {
    const double mass = language_mass<Real>(both_.kept, view_, options_)[0];
    EXPECT_NEAR(mass, static_cast<double>(all_.language_mass()), log_bound<Real>(gap(), all_.log_z())) << what_;
    language_mass<Real>(both_.kept, view_, gradients(), options_);
    expect_gradients(all_.language_mass_gradient(), gap(), "mass");
  }

  void check_entropy() {
    const double value = entropy<Real>(both_.kept, view_, options_)[0];
    const double bound = gap() * T_ * std::log(std::max(K_, 2)) + coin_entropy(gap()) + tolerance<Real>;
    EXPECT_NEAR(value, static_cast<double>(all_.entropy()), bound) << what_;
    // Gradients have no certificate; with a gap of next to nothing they are right all the same.
    LossOptions options = options_;
    options.max_gap = 1e-9;
    entropy<Real>(both_.kept, view_, gradients(), options);
    expect_gradients(all_.entropy_gradient(), 1e-5, "entropy");
  }

  void check_posterior() {
    const Path path = posterior_decode<Real>(both_.kept, view_, options_)[0];
    EXPECT_TRUE(both_.multiplied.accepts(path.labels)) << what_;
    EXPECT_LT(all_.nll(path.labels), inf) << what_;
    const double best = static_cast<double>(all_.best_posterior_score());
    EXPECT_GE(static_cast<double>(all_.posterior_score(path.labels)), best - 2 * T_ * gap() - T_ * 1e-4) << what_;
  }

  void check_samples() {
    for (const double temperature : {1.0, 0.5, 3.0}) {
      const Sampling sampling{.count = 3, .seed = 5, .temperature = temperature};
      const auto samples = sample<Real>(both_.kept, view_, sampling, options_);
      for (const Path& path : samples[0]) EXPECT_TRUE(both_.multiplied.accepts(path.labels)) << what_;
    }
  }

  const BothWays& both_;
  oracle::Enumeration all_;
  Instance<Real> instance_;
  Scores<Real> view_;
  int T_, K_;
  std::string what_;
  LossOptions options_;
  std::vector<double> gap_ = {7};
  std::vector<Real> dh_, dg_, ds_, de_;
};

class RandomConjunctions : public ::testing::TestWithParam<int> {};
constexpr int kShards = 10, kLanguages = 520;  // 5,200 languages in all

TEST_P(RandomConjunctions, KeepEveryCertificate) {
  Random random(static_cast<std::uint64_t>(1000 + GetParam()));
  for (int languages = 1; languages <= kLanguages; ++languages) {
    const int K = random.between(1, 4);
    const BothWays both = random_rules(random, K);
    const oracle::Scores scores = random_scores(random, random.between(0, 6), K);
    const double gaps[] = {1e-2, 1e-4, 1e-6};
    const double max_gap = gaps[languages % 3];
    Case<double>(both, scores, max_gap).check(random);
    if (languages % 4 == 0) Case<float>(both, scores, std::max(max_gap, 1e-4)).check(random);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomConjunctions, ::testing::Range(0, kShards));

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A certificate that is always max_gap, or far from the true error, would be worth nothing. Peaked scores, as of a
// trained model, on sequences too long to be enumerated; the language multiplied out gives the truth.
class Certificates : public ::testing::TestWithParam<double> {};

TEST_P(Certificates, AreNotVacuous) {
  const double max_gap = GetParam();
  Random random(31);
  std::vector<double> gaps, shares;  // of all sums; true error over certified one, where A is not L
  for (int i = 0; i < 400; ++i) {
    const int K = random.between(3, 5), T = random.between(8, 25);
    const BothWays both = random_rules(random, K);
    oracle::Scores scores = oracle::random_scores(random, oracle::ScoreKind::normal, T, K, random.chance(0.5));
    for (double& h : scores.emissions) h *= 4;
    const Instance<double> instance(scores);
    const Scores<double> view = instance.view();
    const double exact = log_z<double>(both.multiplied, view)[0];
    if (exact == -inf) continue;
    std::vector<double> gap(1);
    Options options;
    options.max_gap = max_gap;
    options.gaps = gap;
    const double error = std::fabs(log_z<double>(both.kept, view, options)[0] - exact);
    ASSERT_LE(gap[0], max_gap) << both.text;
    ASSERT_LE(error, std::log1p(gap[0]) + 1e-10 * std::fabs(exact)) << both.text;
    gaps.push_back(gap[0]);
    if (gap[0] > max_gap / 1000) shares.push_back(error / std::log1p(gap[0]));
  }
  ASSERT_GT(gaps.size(), 200u);
  ASSERT_GT(shares.size(), 100u);
  EXPECT_LT(median(gaps), max_gap / 2);
  EXPECT_GT(median(shares), 0.01);
}

// What is too large for a gap gets a larger one, which holds too; limits that nothing fits leave the base's bound.
TEST(RuleSums, RelaxWhatIsTooLarge) {
  Random random(37);
  int relaxed = 0;
  for (int i = 0; i < 600; ++i) {
    const int K = random.between(3, 5), T = random.between(8, 25);
    const BothWays both = random_rules(random, K);
    const Instance<double> instance(oracle::random_scores(random, oracle::ScoreKind::normal, T, K, true));
    const Scores<double> view = instance.view();
    const double exact = log_z<double>(both.multiplied, view)[0];
    if (exact == -inf) continue;
    const std::vector<double> max_gaps = {random.between(1, 9) * 1e-6};
    std::vector<double> gap(1);
    Options options;
    options.uncertified = Uncertified::relax;
    options.max_gaps = max_gaps;
    options.gaps = gap;
    options.rules.cells_a_position = random.between(3, 12);
    options.rules.products = 1;
    const double found = log_z<double>(both.kept, view, options)[0];
    const double slack = 1e-10 * std::fabs(exact);
    if (gap[0] == inf) {
      EXPECT_GE(found, exact - slack) << both.text;
      continue;
    }
    EXPECT_LE(gap[0], 1) << both.text;
    EXPECT_LE(std::fabs(found - exact), std::log1p(gap[0]) + slack) << both.text;
    relaxed += gap[0] > max_gaps[0];
  }
  EXPECT_GT(relaxed, 20);
}

INSTANTIATE_TEST_SUITE_P(Gaps, Certificates, ::testing::Values(1e-2, 1e-4, 1e-6));

// Longer sequences under many rules, where forgetting and pruning have something to do. Here the exact passes over the
// language multiplied out are the oracle.
TEST(RuleSums, HoldOnLongerSequences) {
  Random random(3);
  std::vector<double> shares;  // true error over certified one
  for (int i = 0; i < 120; ++i) {
    const int K = 6, T = random.between(10, 40);
    std::string text = ".*";
    for (int a = 0; a < K; ++a) {
      const std::string x(1, static_cast<char>('A' + a));
      if (a < 3) text += " & at_most(" + std::to_string(random.between(1, 2)) + ", " + x + ")";
      if (a == 3) text += " & once_contiguous(D)";
      if (a == 4) text += " & before(A, E) & requires(E, B)";
    }
    const Language language = Language::parse(text, Labels({"A", "B", "C", "D", "E", "F"}));
    const Constraint kept = compile(language, {}, Rules::all), multiplied = compile(language, {}, Rules::none);
    ASSERT_GT(kept.rules(), 0);
    oracle::Scores scores = oracle::random_scores(random, oracle::ScoreKind::normal, T, K, true);
    for (double& h : scores.emissions) h *= 3;
    for (int t = 0; t < T; ++t) scores.emissions[t * K + 5] += 6;
    const Instance<double> instance(scores);
    const Scores<double> view = instance.view();
    std::vector<double> gaps(1);
    for (const double max_gap : {1e-1, 1e-2, 1e-3, 1e-4, 1e-6}) {
      Options options;
      options.max_gap = max_gap;
      options.gaps = gaps;
      const double z = log_z<double>(kept, view, options)[0], exact = log_z<double>(multiplied, view)[0];
      ASSERT_LE(gaps[0], max_gap);
      ASSERT_NEAR(z, exact, std::log1p(gaps[0]) + 1e-10 * std::fabs(exact));
      std::vector<double> marginals(instance.emissions.size()), truth(marginals.size());
      label_marginals<double>(kept, view, marginals, options);
      label_marginals<double>(multiplied, view, truth);
      for (std::size_t k = 0; k < truth.size(); ++k) ASSERT_NEAR(marginals[k], truth[k], gaps[0] + 1e-10);
      if (gaps[0] > 1e-9) shares.push_back(std::fabs(z - exact) / std::log1p(gaps[0]));
    }
  }
  // Certificates are not vacuous: half of them are within two decades of the truth.
  ASSERT_GT(shares.size(), 200u);
  EXPECT_GT(median(shares), 0.01);
}

TEST(RuleSums, AreTheSameForAnyNumberOfThreadsAndAnyBatch) {
  Random random(9);
  const Language language = Language::parse(".* & at_most(1, A) & at_most(1, B) & once_contiguous(C) & requires(D, A)",
                                            Labels({"A", "B", "C", "D", "E"}));
  const Constraint kept = compile(language, {}, Rules::all);
  const int B = 40, T = 15, K = 5;
  std::vector<double> h, g(K * K);
  for (int i = 0; i < B * T * K; ++i) h.push_back(3 * random.normal());
  for (double& x : g) x = random.normal();
  std::vector<std::int64_t> first, length;
  for (int i = 0; i < B; ++i) first.push_back(i * T), length.push_back(T - i % 3);
  const Scores all(h, g, Layout::ragged(first, length));
  Options one, two;
  two.threads = 2;
  const std::vector<double> z = log_z<double>(kept, all, one);
  EXPECT_EQ(z, log_z<double>(kept, all, two));
  for (int i = 0; i < B; ++i) {
    const Scores alone(std::span<const double>(h).subspan(i * T * K, length[i] * K), g);
    EXPECT_EQ(z[i], log_z<double>(kept, alone, one)[0]);
  }
}

TEST(RuleSums, SamplesAreDistributedAsTheLanguageSays) {
  Random random(21);
  const Language language =
      Language::parse(".* & at_most(1, A) & once_contiguous(B) & requires(C, A)", Labels({"A", "B", "C"}));
  const Constraint kept = compile(language, {}, Rules::all), multiplied = compile(language, {}, Rules::none);
  ASSERT_GT(kept.rules(), 0);
  const oracle::Scores scores = oracle::random_scores(random, oracle::ScoreKind::normal, 4, 3, true);
  const oracle::Enumeration all(multiplied.automaton(), scores);
  const Instance<double> instance(scores);
  const int count = 40000;
  for (const double temperature : {1.0, 2.0}) {
    std::map<std::vector<Label>, int> seen;
    const Sampling sampling{.count = count, .seed = 3, .temperature = temperature};
    const auto samples = sample<double>(kept, instance.view(), sampling);
    for (const Path& path : samples[0]) ++seen[path.labels];
    const std::vector<oracle::Real> p = all.probabilities(temperature);
    double chi = 0, rare = 0;
    int cells = 0, rare_seen = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double expected = static_cast<double>(p[i]) * count;
      const int n = seen[all.paths()[i].labels];
      if (expected < 8) {
        rare += expected;
        rare_seen += n;
        continue;
      }
      chi += (n - expected) * (n - expected) / expected;
      ++cells;
    }
    if (rare >= 8) chi += (rare_seen - rare) * (rare_seen - rare) / rare, ++cells;
    EXPECT_LT(chi, cells + 5 * std::sqrt(2.0 * cells)) << cells;  // five standard deviations
  }
}

// With a large gap many sequences that are drawn first break a rule.
TEST(RuleSums, SamplesAreLegalWithAnyGap) {
  Random random(22);
  int uncertain = 0;
  for (int i = 0; i < 100; ++i) {
    const BothWays both = random_rules(random, 4);
    const Instance<double> instance(oracle::random_scores(random, oracle::ScoreKind::normal, 12, 4, true));
    std::vector<double> gap(1);
    Options options;
    options.max_gap = 0.5;
    options.gaps = gap;
    options.impossible = Impossible::allow;
    const auto samples = sample<double>(both.kept, instance.view(), {.count = 200, .seed = 1}, options);
    for (const Path& path : samples[0]) ASSERT_TRUE(both.multiplied.accepts(path.labels)) << both.text;
    uncertain += gap[0] > 0.1;
  }
  EXPECT_GT(uncertain, 10);
}

// A bound on one sum is no bound on a difference: where one of the two is not certain, the loss is the base's.
TEST(RuleSums, PartialLossesThatAreNotCertainAreTheBases) {
  Random random(23);
  int bounds = 0, restricted_is_certain = 0;
  for (int i = 0; i < 300; ++i) {
    const int K = 4, T = 12;
    const BothWays both = random_rules(random, K);
    const Instance<double> instance(oracle::random_scores(random, oracle::ScoreKind::normal, T, K, true));
    std::vector<std::uint8_t> allowed(instance.emissions.size());
    for (auto& x : allowed) x = random.chance(0.5);
    std::vector<double> gap(1), dh(instance.emissions.size()), base_dh(dh.size());
    LossOptions options;
    options.uncertified = Uncertified::bound;
    options.outside = OutsideGold::skip;
    options.gaps = gap;
    options.max_gap = 1e-4;
    options.rules = {.products = 1, .cells_a_position = random.between(1, 12)};
    const Loss loss = partial_nll<double>(both.kept, instance.view(), allowed, {.emissions = dh}, options);
    if (loss.skipped[0] || gap[0] < inf) continue;
    const Loss base = partial_nll<double>(both.kept.base(), instance.view(), allowed, {.emissions = base_dh}, options);
    EXPECT_EQ(loss.values[0], base.values[0]) << both.text;
    EXPECT_EQ(dh, base_dh) << both.text;
    ++bounds;
    std::vector<double> h = instance.emissions;
    for (std::size_t k = 0; k < h.size(); ++k) h[k] = allowed[k] ? h[k] : -inf;
    const Scores<double> view = instance.view();
    log_z<double>(both.kept, Scores<double>(h, view.transitions).with_start_end(view.start, view.end), options);
    restricted_is_certain += gap[0] < inf;
  }
  EXPECT_GT(bounds, 30);
  EXPECT_GT(restricted_is_certain, 10);
}

template <class Call>
std::string message(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Every operation that needs a legal sequence says that there is none; sums of nothing are −inf.
void expect_impossible(const Constraint& kept, const Scores<double>& scores, const std::string& why) {
  const auto K = static_cast<std::size_t>(kept.labels().size()), T = scores.emissions.size() / K;
  const std::string expected = "length " + std::to_string(T) + ", and " + why;
  std::vector<double> out(T * K * K);
  const auto says_so = [&](const std::string& said) {
    EXPECT_NE(said.find(expected), std::string::npos) << said << " instead of " << expected;
  };
  says_so(message([&] { label_marginals<double>(kept, scores, std::span(out).first(T * K)); }));
  says_so(message([&] { bigram_marginals<double>(kept, scores, out); }));
  says_so(message([&] { entropy<double>(kept, scores); }));
  says_so(message([&] { sample<double>(kept, scores); }));
  says_so(message([&] { posterior_decode<double>(kept, scores); }));
  says_so(message([&] { viterbi<double>(kept, scores); }));
  EXPECT_EQ(log_z<double>(kept, scores)[0], -inf);
  EXPECT_EQ(language_mass<double>(kept, scores)[0], -inf);
}

TEST(RuleSums, SayWhatIsImpossible) {
  const Constraint kept =
      compile(Language::parse(".* & exactly(2, A) & at_most(1, B)", Labels({"A", "B", "C"})), {}, Rules::all);
  ASSERT_GT(kept.rules(), 0);
  std::vector<double> h(9), g(9);
  expect_impossible(kept, Scores<double>(std::span<const double>(h).first(3), g),
                    "the rules ask for 2 labels at least");
  for (int t = 0; t < 2; ++t) h[t * 3] = -inf;  // one place is left for two As
  const Scores<double> scores(h, g);
  expect_impossible(kept, scores, "no sequence of that length obeys all rules and has a finite score");
  const std::vector<Label> gold = {0, 0, 2}, early = {0, 2, 2};
  EXPECT_NE(message([&] { nll<double>(kept, scores, gold); }).find("the correct labels have a score of -inf"),
            std::string::npos);
  EXPECT_NE(message([&] { nll<double>(kept, scores, early); }).find("end too early"), std::string::npos);
}

TEST(RuleSums, SayWhatIsWrong) {
  const Constraint kept =
      compile(Language::parse(".* & exactly(1, A) & at_most(1, B)", Labels({"A", "B", "C"})), {}, Rules::all);
  ASSERT_GT(kept.rules(), 0);
  const std::vector<double> h(9), g(9);
  const Scores scores(h, g);
  for (const double gap : {0.0, -1.0, std::nan(""), inf}) {
    LossOptions options;
    options.max_gap = gap;
    const std::string said = message([&] { log_z<double>(kept, scores, options); });
    EXPECT_NE(said.find("[log_z] max_gap is "), std::string::npos) << said;
    EXPECT_NE(said.find("expected a number above 0"), std::string::npos) << said;
  }
  const std::vector<Label> outside = {0, 0, 1};
  const std::string leaves = message([&] { nll<double>(kept, scores, outside); });
  EXPECT_NE(leaves.find("position 1"), std::string::npos) << leaves;
  EXPECT_NE(leaves.find("exactly(1, A)"), std::string::npos) << leaves;
  Options few;
  few.rules.cells = 2;
  few.rules.products = 1;
  const std::string limit = message([&] { log_z<double>(kept, scores, few); });
  EXPECT_NE(limit.find("max_gap"), std::string::npos) << limit;
  few.uncertified = Uncertified::bound;
  std::vector<double> gaps(1);
  few.gaps = gaps;
  Workspace workspace;
  few.workspace = &workspace;
  EXPECT_GE(log_z<double>(kept, scores, few)[0], log_z<double>(kept, scores)[0]);
  EXPECT_EQ(gaps[0], inf);
  EXPECT_EQ(workspace.statistics().uncertified, 1);
}

// Small numbers are not printed as 0.
TEST(RuleSums, NameSmallGaps) {
  const Constraint kept =
      compile(Language::parse(".* & at_most(1, A) & at_most(1, B)", first_letters(3)), {}, Rules::all);
  const std::vector<double> h(60), g(9);
  Options options;
  options.max_gap = -1e-7;
  EXPECT_NE(message([&] { log_z<double>(kept, Scores(h, g), options); }).find("max_gap is -1e-07"), std::string::npos);
  options.max_gap = 1e-9;
  options.rules = {.products = 1, .cells_a_position = 2};
  const std::string said = message([&] { log_z<double>(kept, Scores(h, g), options); });
  EXPECT_NE(said.find("a gap of 1e-09 within 40 cells"), std::string::npos) << said;
}

// What is asked for directly is certain to 1e-4, a loss with gradients to 1e-3.
TEST(RuleSums, EntropyWithoutGradientsIsAskedForDirectly) {
  Random random(5);
  double largest = 0, of_losses = 0;
  for (int i = 0; i < 60; ++i) {
    const BothWays both = random_rules(random, 4);
    oracle::Scores scores = oracle::random_scores(random, oracle::ScoreKind::normal, 20, 4, false);
    for (double& h : scores.emissions) h *= 4;
    const Instance<double> instance(scores);
    std::vector<double> gap(1), dh(instance.emissions.size());
    Options options;
    options.impossible = Impossible::allow;
    options.gaps = gap;
    entropy<double>(both.kept, instance.view(), options);
    largest = std::max(largest, gap[0]);
    entropy<double>(both.kept, instance.view(), Gradients<double>{.emissions = dh}, options);
    of_losses = std::max(of_losses, gap[0]);
  }
  EXPECT_LE(largest, 1e-4);
  EXPECT_GT(of_losses, 1e-4);
}

// Rounding of scores over a small temperature must not show, in float either.
TEST(RuleSums, SamplesOfFloatScoresAtLowTemperature) {
  const Constraint kept =
      compile(Language::parse(".* & at_most(1, C) & at_most(1, D)", first_letters(4)), {}, Rules::all);
  ASSERT_GT(kept.rules(), 0);
  const int T = 6, count = 20000;
  const float high = 16384 + 0x1p-9f, low = 16384, none = -std::numeric_limits<float>::infinity();
  std::vector<float> h, g(16);
  for (int t = 0; t < T; ++t) h.insert(h.end(), {high, low, none, none});
  const auto samples = sample<float>(kept, Scores(h, g), {.count = count, .seed = 7, .temperature = 0.01});
  double seen = 0;
  for (const Path& path : samples[0])
    seen += static_cast<double>(std::count(path.labels.begin(), path.labels.end(), 0));
  const double n = T * count, p = 1 / (1 + std::exp(-0x1p-9 / 0.01));
  EXPECT_NEAR(seen / n, p, 5 * std::sqrt(p * (1 - p) / n));
}

TEST(RuleSums, SamplesUnderRulesNeedATemperature) {
  const Constraint kept =
      compile(Language::parse(".* & at_most(1, A) & at_most(1, B)", first_letters(3)), {}, Rules::all);
  const std::vector<double> h = {0, 1, 3, 0, 1, 2}, g(9);
  const std::string said = message([&] { sample<double>(kept, Scores(h, g), {.temperature = 1e-10}); });
  EXPECT_NE(said.find("temperature is 1e-10, and under kept rules 1e-06 is the least"), std::string::npos) << said;
  EXPECT_EQ(sample<double>(kept, Scores(h, g), {.temperature = 1e-6})[0][0].labels, (std::vector<Label>{2, 2}));
}

// The fast pass loses up to a few 1e-11 of the whole. Beside a mass that is smaller still this counts: of two legal
// sequences, C … C and D … D, it does not see the second, which its last score makes as likely as the first.
TEST(RuleSums, CountWhatTheFastPassLoses) {
  const Constraint kept =
      compile(Language::parse(".* & before(A, B) & at_most(1, A)", first_letters(4)), {}, Rules::all);
  ASSERT_GT(kept.rules(), 0);
  const int T = 40;
  for (const double last : {-600.0, -652.0, -653.0, -656.0}) {
    std::vector<double> h, g(16, -inf);
    for (int t = 0; t < T; ++t) h.insert(h.end(), {-inf, 0, 0, -last / T});
    g[1 * 4 + 1] = g[1 * 4 + 2] = g[2 * 4 + 1] = g[2 * 4 + 2] = g[3 * 4 + 3] = 0;
    const std::vector<double> start(4), end = {0, 0, 0, last};
    std::vector<double> gap(1);
    Options options;
    options.gaps = gap;
    const double z = log_z<double>(kept, Scores<double>(h, g).with_start_end(start, end), options)[0];
    EXPECT_LE(gap[0], 1e-4);
    EXPECT_NEAR(z, std::log(2), std::log1p(gap[0]) + 1e-9) << last;
  }
}

// All but one of 2^T sequences break a rule, step by step, and nothing has to be left out: a mass that is next to
// nothing, at no price.
TEST(RuleSums, HoldWhereHardlyAnythingIsLegal) {
  const Constraint kept =
      compile(Language::parse(".* & before(A, B) & at_most(1, A)", first_letters(3)), {}, Rules::all);
  for (const int T : {30, 300, 1000, 1040, 1060, 1068, 1070, 1080, 2000}) {
    std::vector<double> h, g(9);
    double expected = 0;
    for (int t = 0; t < T; ++t) {
      h.insert(h.end(), {-inf, 0, -0.001 * (t % 7)});
      expected += h.back();
    }
    std::vector<double> gap(1);
    Options options;
    options.gaps = gap;
    const double z = log_z<double>(kept, Scores<double>(h, g), options)[0];
    EXPECT_LE(gap[0], 1e-4);
    EXPECT_NEAR(z, expected, std::log1p(gap[0]) + 1e-10 * T) << T;
  }
}

// The states of a rule with very many of them are not compared: where one changes, all of the row may be lost.
TEST(RuleSums, HoldWhereARuleHasManyStates) {
  Random random(43);
  const Language language =
      Language::parse(".* & at_most(26, C) & !(.{27} B .*) & once_contiguous(A) & at_most(2, B)", first_letters(4));
  const Constraint kept = compile(language, {}, Rules::all), multiplied = compile(language, {}, Rules::none);
  ASSERT_EQ(kept.rules(), 4);
  int uncertain = 0;
  for (int i = 0; i < 60; ++i) {
    const int T = random.between(20, 45);
    oracle::Scores scores = oracle::random_scores(random, oracle::ScoreKind::normal, T, 4, true);
    for (double& h : scores.emissions) h *= 3;
    const Instance<double> instance(scores);
    const double exact = log_z<double>(multiplied, instance.view())[0];
    for (const double max_gap : {0.3, 1e-2, 1e-4, 1e-6}) {
      std::vector<double> gap(1);
      Options options;
      options.max_gap = max_gap;
      options.gaps = gap;
      const double z = log_z<double>(kept, instance.view(), options)[0];
      EXPECT_LE(gap[0], max_gap);
      EXPECT_NEAR(z, exact, std::log1p(gap[0]) + 1e-10 * std::fabs(exact)) << max_gap;
      uncertain += gap[0] > 1e-9;
    }
  }
  EXPECT_GT(uncertain, 50);
}

// A large gap asks for less work, never for more.
TEST(RuleSums, TakeAnyGap) {
  Random random(41);
  const std::string text = ".* & at_most(1, A) & at_most(2, B) & once_contiguous(C) & requires(D, A)";
  const Constraint kept = compile(Language::parse(text, first_letters(6)), {}, Rules::all);
  int fits = 0;
  for (int i = 0; i < 40; ++i) {
    const Instance<double> instance(oracle::random_scores(random, oracle::ScoreKind::normal, 30, 6, true));
    const double exact = log_z<double>(kept, instance.view())[0];
    std::vector<double> gap(1);
    Options options;
    options.gaps = gap;
    options.rules = {.products = 1, .cells_a_position = 50 + 5 * i};
    for (const double max_gap : {0.3, 1.0, 10.0, 1e3, 1e300}) {
      options.max_gap = max_gap;
      const std::string said = message([&] {
        const double z = log_z<double>(kept, instance.view(), options)[0];
        EXPECT_LE(gap[0], max_gap);
        EXPECT_LE(std::fabs(z - exact), std::log1p(gap[0]) + 1e-3);
      });
      if (max_gap == 0.3 && said != "") break;
      EXPECT_EQ(said, "") << max_gap;
      fits += max_gap == 0.3;
    }
  }
  EXPECT_GT(fits, 10);
}

}  // namespace
}  // namespace regccrf
