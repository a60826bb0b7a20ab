// Evaluation: conlleval's own numbers on files of every mess that it reads, spans built independently where labels are
// well-formed, and what intervals and tests must do.
#include "regccrf/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <set>
#include <tuple>

#include "regccrf/language.h"

namespace regccrf {
namespace {

using Sequences = std::vector<LabelNames>;

struct Random {
  std::mt19937_64 engine;
  explicit Random(std::uint64_t seed) : engine(seed) {}
  std::size_t below(std::size_t n) { return engine() % n; }
  bool chance(int percent) { return engine() % 100 < static_cast<unsigned>(percent); }
  template <class Container>
  const auto& pick(const Container& c) {
    return c[below(c.size())];
  }
};

// --- beside conlleval -----------------------------------------------------------------------------------------------

// Labels of a scheme, mixed without regard to its rules; some belong to no scheme.
std::string messy_label(Random& random, int kind) {
  static const std::vector<std::vector<std::string>> tags = {
      {"B", "I", "O"},
      {"B", "I", "E", "S", "O"},
      {"B", "I", "E", "S", "O", "[", "]", ".", "L", "U", "", "BB", "0"},
      {"B", "I", "O", "E", "[", "]", "S"},
      {"B", "I", "O"}};
  static const std::vector<std::vector<std::string>> types = {
      {"PER", "LOC"}, {"PER", "LOC", "A-B"}, {"", "0", "00", "X", "a-b", "-", "x-", "né"}, {""}, {"", "X", "0"}};
  const std::string tag = random.pick(tags[static_cast<std::size_t>(kind)]);
  if (tag == "O" && random.chance(90)) return tag;
  const std::string type = random.pick(types[static_cast<std::size_t>(kind)]);
  const bool bare = type.empty() && random.chance(50);
  if (bare) return tag.empty() ? "-" : tag;
  return tag + "-" + type;
}

struct Case {
  Sequences gold, predicted;
  EvaluateOptions options;
};

Case messy_case(std::uint64_t seed) {
  Random random(seed);
  Case result;
  const int kind = static_cast<int>(random.below(5)), agreement = random.pick(std::vector<int>{0, 30, 70, 95});
  if (random.chance(15)) result.options.scheme = SpanScheme::tokens;
  result.options.last_is_followed_by_empty_line = random.chance(50);
  const std::size_t sequences = 1 + random.below(40);
  for (std::size_t i = 0; i < sequences; ++i) {
    result.gold.emplace_back();
    result.predicted.emplace_back();
    for (std::size_t t = 1 + random.below(12); t > 0; --t) {
      result.gold.back().push_back(messy_label(random, kind));
      result.predicted.back().push_back(random.chance(agreement) ? result.gold.back().back()
                                                                 : messy_label(random, kind));
    }
  }
  return result;
}

std::uint32_t fnv(const std::string& text) {
  std::uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

// What conlleval (2004-01-26, with -r for the scheme `tokens`) printed for messy_case(0), messy_case(1), …: phrases,
// found, correct, and a hash of the whole report. WriteFiles writes the files that it read.
struct Printed {
  std::int64_t gold, predicted, correct;
  std::uint32_t report;
};
const Printed kConlleval[] = {
#include "tests/tagger/conlleval.inc"
};

TEST(Evaluate, EqualsConllevalOnEveryMess) {
  for (std::size_t seed = 0; seed < std::size(kConlleval); ++seed) {
    const Case c = messy_case(seed);
    const Evaluation e = evaluate(c.gold, c.predicted, c.options);
    const Printed& printed = kConlleval[seed];
    EXPECT_EQ(e.total.spans, (SpanCounts{printed.gold, printed.predicted, printed.correct})) << "case " << seed;
    EXPECT_EQ(fnv(conlleval_report(e)), printed.report) << "case " << seed << "\n" << conlleval_report(e);
  }
}

// Files for conlleval, into the folder REGCCRF_CASES; those that want -r end in .raw.
TEST(Evaluate, DISABLED_WriteFiles) {
  const char* folder = std::getenv("REGCCRF_CASES");
  ASSERT_TRUE(folder) << "REGCCRF_CASES names the folder to write to";
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Case c = messy_case(seed);
    std::ofstream out(folder + ("/" + std::to_string(seed)) +
                      (c.options.scheme == SpanScheme::tokens ? ".raw" : ".txt"));
    for (std::size_t i = 0; i < c.gold.size(); ++i) {
      for (std::size_t t = 0; t < c.gold[i].size(); ++t)
        out << "word " << c.gold[i][t] << " " << c.predicted[i][t] << "\n";
      if (i + 1 < c.gold.size() || c.options.last_is_followed_by_empty_line) out << "\n";
    }
  }
}

TEST(Evaluate, ReportOfAKnownFile) {
  const Sequences gold = {{"B-PER", "I-PER", "O", "B-LOC"}, {"O", "B-LOC"}};
  const Sequences predicted = {{"B-PER", "I-PER", "O", "B-PER"}, {"O", "B-LOC"}};
  EXPECT_EQ(conlleval_report(evaluate(gold, predicted)),
            "processed 6 tokens with 3 phrases; found: 3 phrases; correct: 2.\n"
            "accuracy:  83.33%; precision:  66.67%; recall:  66.67%; FB1:  66.67\n"
            "              LOC: precision: 100.00%; recall:  50.00%; FB1:  66.67  1\n"
            "              PER: precision:  50.00%; recall: 100.00%; FB1:  66.67  2\n");
}

// --- beside spans built by hand -------------------------------------------------------------------------------------

using Span = std::tuple<std::size_t, std::size_t, std::string>;  // first, last, type

// `starts` and `ends`: whether a span starts or ends at a label that is not O.
template <class Starts, class Ends>
std::set<Span> spans_of(const LabelNames& labels, const Starts& starts, const Ends& ends) {
  std::set<Span> spans;
  std::size_t first = 0;
  for (std::size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] == "O") continue;
    if (starts(labels, t)) first = t;
    if (ends(labels, t)) spans.insert({first, t, labels[t].substr(labels[t].find('-') + 1)});
  }
  return spans;
}

std::set<Span> bio_spans(const LabelNames& labels) {
  return spans_of(
      labels, [](const LabelNames& l, std::size_t t) { return l[t][0] == 'B'; },
      [](const LabelNames& l, std::size_t t) { return t + 1 == l.size() || l[t + 1][0] != 'I'; });
}

std::set<Span> bioes_spans(const LabelNames& labels) {
  return spans_of(
      labels, [](const LabelNames& l, std::size_t t) { return l[t][0] == 'B' || l[t][0] == 'S'; },
      [](const LabelNames& l, std::size_t t) { return l[t][0] == 'E' || l[t][0] == 'S'; });
}

std::set<Span> run_spans(const LabelNames& labels) {
  return spans_of(
      labels, [](const LabelNames& l, std::size_t t) { return t == 0 || l[t - 1] != l[t]; },
      [](const LabelNames& l, std::size_t t) { return t + 1 == l.size() || l[t + 1] != l[t]; });
}

void expect_spans(const std::string& pattern, SpanScheme scheme, std::set<Span> (*spans)(const LabelNames&)) {
  const Language language = Language::parse(pattern);
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    Sequences gold, predicted;
    SpanCounts expected;
    for (int i = 0; i < 5; ++i) {
      const std::size_t length = 1 + random.below(9);
      const auto drawn = language.random(length, 2, random.engine());
      gold.push_back(language.labels().names(drawn[0]));
      predicted.push_back(language.labels().names(random.chance(30) ? drawn[0] : drawn[1]));
      const std::set<Span> g = spans(gold.back()), p = spans(predicted.back());
      expected.gold += static_cast<std::int64_t>(g.size());
      expected.predicted += static_cast<std::int64_t>(p.size());
      for (const Span& span : p) expected.correct += g.contains(span) ? 1 : 0;
    }
    EvaluateOptions options;
    options.scheme = scheme;
    EXPECT_EQ(evaluate(gold, predicted, options).total.spans, expected);
  }
}

TEST(Evaluate, CountsBioSpans) { expect_spans("bio({X Y})", SpanScheme::prefixed, bio_spans); }
TEST(Evaluate, CountsBioesSpans) { expect_spans("bioes({X Y})", SpanScheme::bioes, bioes_spans); }
TEST(Evaluate, BioesKeepsNeighboursApartWhereConllevalJoinsThem) {
  const Sequences neighbours = {{"S-X", "S-X"}}, other = {{"S-X", "O"}};
  EvaluateOptions bioes;
  bioes.scheme = SpanScheme::bioes;
  EXPECT_EQ(evaluate(neighbours, other).total.spans, (SpanCounts{1, 1, 0}));
  EXPECT_EQ(evaluate(neighbours, other, bioes).total.spans, (SpanCounts{2, 1, 1}));
  EXPECT_EQ(evaluate(neighbours, other, bioes).total.correct_tokens, 1);
}

TEST(Evaluate, CountsRunsAsSpans) { expect_spans("[O a b c-d]*", SpanScheme::runs, run_spans); }

TEST(Evaluate, CountsTokensAsSpans) {
  EvaluateOptions options;
  options.scheme = SpanScheme::tokens;
  const Evaluation e = evaluate(Sequences{{"a", "a", "O", "b-c"}}, Sequences{{"a", "b-c", "a", "b-c"}}, options);
  EXPECT_EQ(e.total.spans, (SpanCounts{3, 4, 2}));
  EXPECT_EQ(e.types.at("b-c"), (SpanCounts{1, 2, 1}));
}

// --- everything else that is counted --------------------------------------------------------------------------------

TEST(Evaluate, SequencesAddUpToTheTotal) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Case c = messy_case(seed);
    const Evaluation e = evaluate(c.gold, c.predicted, c.options);
    Counts sum;
    for (const Counts& counts : e.sequences) sum += counts;
    EXPECT_EQ(sum, e.total);
    SpanCounts types;
    for (const auto& [type, counts] : e.types) types += counts;
    EXPECT_EQ(types, e.total.spans);
  }
}

TEST(Evaluate, GuessesTheScheme) {
  EXPECT_EQ(guess_scheme(Sequences{{"O", "O"}}), SpanScheme::prefixed);
  EXPECT_EQ(guess_scheme(Sequences{{"O"}, {"O", "I-PER"}}), SpanScheme::prefixed);
  EXPECT_EQ(guess_scheme(Sequences{{"O", "B", "I"}}), SpanScheme::prefixed);
  EXPECT_EQ(guess_scheme(Sequences{{"O", "I-PER", "E-PER"}}), SpanScheme::prefixed);
  EXPECT_EQ(guess_scheme(Sequences{{"O", "B-PER", "E-PER"}, {"S-PER"}}), SpanScheme::bioes);
  EXPECT_EQ(guess_scheme(Sequences{{"author", "container-title"}}), SpanScheme::runs);
  EXPECT_EQ(guess_scheme(Sequences{{"S", "1", "H", "2"}}), SpanScheme::runs);
  EXPECT_EQ(guess_scheme(Sequences{{"N", "I", "0"}}), SpanScheme::runs);
  EXPECT_EQ(guess_scheme(Sequences{{"O", "PER", "O"}}), SpanScheme::runs);
}

TEST(Evaluate, CountsExactSequencesAndViolations) {
  EvaluateOptions options;
  options.constraint = compile(Language::parse("bio({X})"));
  const Sequences gold = {{"B-X", "I-X"}, {"O"}, {"O", "O"}, {}};
  const Sequences predicted = {{"B-X", "I-X"}, {"I-X"}, {"O", "B-Y"}, {}};
  const Evaluation e = evaluate(gold, predicted, options);
  EXPECT_EQ(e.total.exact, 2);
  EXPECT_EQ(e.total.violations, 2);  // I-X without its head, and a label that the language lacks
  EXPECT_DOUBLE_EQ(e.total.violation_rate(), 50);
  EXPECT_DOUBLE_EQ(e.total.exact_accuracy(), 50);
}

TEST(Evaluate, UnknownGoldCountsForViolationsAlone) {
  EvaluateOptions options;
  options.scheme = SpanScheme::runs;
  options.unknown = "U";
  options.constraint = compile(Language::parse("a+ b*"));
  const Evaluation e =
      evaluate(Sequences{{"a", "U", "U", "b"}, {"U", "a"}}, Sequences{{"a", "a", "b", "b"}, {"b", "a"}}, options);
  EXPECT_EQ(e.total.tokens, 3);
  EXPECT_EQ(e.total.correct_tokens, 3);
  EXPECT_EQ(e.total.exact, 2);
  EXPECT_EQ(e.total.spans, (SpanCounts{3, 3, 3}));
  EXPECT_EQ(e.total.violations, 1);
}

TEST(Evaluate, RefusesSequencesOfOtherShapes) {
  EXPECT_THROW(evaluate(Sequences{{"O"}}, Sequences{}), Error);
  try {
    evaluate(Sequences{{"O"}, {"O", "O"}}, Sequences{{"O"}, {"O"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[evaluate] sequence 2 has 2 correct labels and 1 predicted ones; the numbers must be equal");
  }
}

TEST(Evaluate, NothingIsNoDivisionByZero) {
  const Evaluation e = evaluate(Sequences{}, Sequences{});
  for (Measure m : {Measure::accuracy, Measure::f1, Measure::exact_accuracy, Measure::violation_rate})
    EXPECT_EQ(value(e.total, m), 0);
  EXPECT_EQ(interval(bootstrap(e.sequences), Measure::f1).high, 0);
  EXPECT_EQ(conlleval_report(e), "processed 0 tokens with 0 phrases; found: 0 phrases; correct: 0.\n");
}

// --- intervals and tests --------------------------------------------------------------------------------------------

// One token a sequence, the first `right` of them right.
Evaluation coin_flips(std::size_t right, std::size_t all) {
  Sequences gold(all, {"B-X"}), predicted(all, {"O"});
  for (std::size_t i = 0; i < right; ++i) predicted[i] = {"B-X"};
  return evaluate(gold, predicted);
}

TEST(Bootstrap, IntervalOfAShareIsTheBinomials) {
  const double n = 2000, share = 0.3;
  const Evaluation e = coin_flips(static_cast<std::size_t>(share * n), static_cast<std::size_t>(n));
  const double deviation = 100 * std::sqrt(share * (1 - share) / n);
  const Interval i = interval(bootstrap(e.sequences, {4000, 5}), Measure::accuracy);
  EXPECT_NEAR(i.low, 100 * share - 1.96 * deviation, 0.1 * deviation);
  EXPECT_NEAR(i.high, 100 * share + 1.96 * deviation, 0.1 * deviation);
  const Interval half = interval(bootstrap(e.sequences, {4000, 5}), Measure::accuracy, 0.5);
  EXPECT_NEAR(half.high - half.low, 2 * 0.674 * deviation, 0.1 * deviation);
}

TEST(Bootstrap, SameSeedSameResamples) {
  const Evaluation e = coin_flips(20, 50);
  EXPECT_EQ(bootstrap(e.sequences, {50, 3}), bootstrap(e.sequences, {50, 3}));
  EXPECT_NE(bootstrap(e.sequences, {50, 3}), bootstrap(e.sequences, {50, 4}));
}

TEST(Bootstrap, SequencesThatAreAllTheSameLeaveNoDoubt) {
  const Interval i = interval(bootstrap(coin_flips(10, 10).sequences), Measure::f1);
  EXPECT_EQ(i.low, 100);
  EXPECT_EQ(i.high, 100);
}

TEST(Compare, ASystemWithItself) {
  const Evaluation e = coin_flips(20, 50);
  const Comparison c = compare(e, e, Measure::f1);
  EXPECT_EQ(c.difference, 0);
  EXPECT_EQ(c.interval.low, 0);
  EXPECT_EQ(c.interval.high, 0);
  EXPECT_EQ(c.p, 1);
}

TEST(Compare, TheOtherWayRoundIsTheNegative) {
  const Evaluation one = coin_flips(20, 50), other = coin_flips(26, 50);
  const Comparison c = compare(one, other, Measure::accuracy), d = compare(other, one, Measure::accuracy);
  EXPECT_DOUBLE_EQ(c.difference, 12);
  EXPECT_DOUBLE_EQ(d.difference, -12);
  EXPECT_DOUBLE_EQ(c.interval.low, -d.interval.high);
  EXPECT_EQ(c.p, d.p);
}

// All 2^n ways to swap, against the random ones.
TEST(Compare, PIsTheShareOfSwapsThatGiveAsMuch) {
  Random random(11);
  for (int round = 0; round < 10; ++round) {
    const std::size_t n = 10;
    Sequences gold, predicted[2];
    for (std::size_t i = 0; i < n; ++i) {
      gold.push_back({"B-X", "O", "B-Y", "O"});
      for (Sequences& system : predicted) {
        system.push_back(gold.back());
        for (std::string& label : system.back())
          label = random.chance(40) ? random.pick(std::vector<std::string>{"B-X", "B-Y", "O"}) : label;
      }
    }
    const Evaluation one = evaluate(gold, predicted[0]), other = evaluate(gold, predicted[1]);
    const double observed = std::abs(other.total.spans.f1() - one.total.spans.f1());
    int as_large = 0;
    for (unsigned swaps = 0; swaps < 1u << n; ++swaps) {
      SpanCounts sums[2];
      for (std::size_t i = 0; i < n; ++i) {
        const bool swap = (swaps >> i & 1) != 0;
        sums[swap] += one.sequences[i].spans;
        sums[!swap] += other.sequences[i].spans;
      }
      if (std::abs(sums[1].f1() - sums[0].f1()) >= observed - 1e-9) ++as_large;
    }
    EXPECT_NEAR(compare(one, other, Measure::f1, {20'000, 1}).p, as_large / 1024.0, 0.015);
  }
}

TEST(Compare, SeveralMeasuresAtOnceSayTheSame) {
  const Case c = messy_case(3), d = messy_case(3);
  const Evaluation one = evaluate(c.gold, c.predicted, c.options), other = evaluate(d.gold, d.gold, d.options);
  const Measure measures[] = {Measure::f1, Measure::accuracy};
  const std::vector<Comparison> both = compare(one, other, measures);
  for (std::size_t i = 0; i < 2; ++i) {
    const Comparison alone = compare(one, other, measures[i]);
    EXPECT_EQ(both[i].difference, alone.difference);
    EXPECT_EQ(both[i].interval.low, alone.interval.low);
    EXPECT_EQ(both[i].p, alone.p);
  }
}

TEST(Compare, RefusesOtherSequences) { EXPECT_THROW(compare(coin_flips(1, 2), coin_flips(1, 3), Measure::f1), Error); }

}  // namespace
}  // namespace regccrf
