// inference.h at its edges: what is legal, what is an error, what an error says, and that layout, threads, memory and
// arithmetic do not change an answer. Answers themselves are checked in the property tests.
#include "regccrf/inference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <sstream>

#include "regccrf/language.h"
#include "regccrf/loss.h"
#include "tests/inference/inference_fixture.h"
#include "tests/oracle/automata.h"

namespace regccrf {
namespace {

const Labels& names() {
  static const Labels labels({"O", "B", "I"});
  return labels;
}

// B I I* : at least two labels, no O.
Constraint one_span() {
  Automaton automaton;
  automaton.accepting = {0, 0, 1};
  automaton.arcs = {{0, 1, 1}, {1, 2, 2}, {2, 2, 2}};
  return Constraint::from_automaton(automaton, names());
}

// (O | B I*)*, deterministic.
Constraint spans() {
  Automaton automaton;
  automaton.accepting = {1, 1};
  automaton.arcs = {{0, 0, 0}, {0, 1, 1}, {1, 0, 0}, {1, 1, 1}, {1, 2, 1}};
  return Constraint::from_automaton(automaton, names());
}

// Even lengths only.
Constraint pairs() {
  Automaton automaton;
  automaton.accepting = {1, 0};
  automaton.arcs = {{0, 0, 1}, {1, 0, 0}};
  return Constraint::from_automaton(automaton, names());
}

// O* | B*: remembers its first label for ever.
Constraint remembers() {
  Automaton automaton;
  automaton.accepting = {1, 1, 1};
  automaton.arcs = {{0, 0, 1}, {0, 1, 2}, {1, 0, 1}, {2, 1, 2}};
  return Constraint::from_automaton(automaton, names());
}

template <class Real>
struct Random {
  Random(int K, std::int64_t T, double spread = 1, unsigned seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, spread);
    const auto fill = [&](std::vector<Real>& v, std::size_t n) {
      v.resize(n);
      for (Real& x : v) x = static_cast<Real>(normal(random));
    };
    fill(emissions, static_cast<std::size_t>(T) * K);
    fill(transitions, static_cast<std::size_t>(K) * K);
    fill(start, static_cast<std::size_t>(K));
    fill(end, static_cast<std::size_t>(K));
  }
  Scores<Real> view(const Layout& layout = Layout::single()) const {
    return Scores(emissions, transitions, layout).with_start_end(start, end);
  }
  std::vector<Real> emissions, transitions, start, end;
};

std::string error_of(const std::function<void()>& job) {
  try {
    job();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Edges, NoPositionsAreLegalIffTheEmptySequenceIs) {
  const Random<float> x(3, 0);
  EXPECT_EQ(log_z(spans(), x.view())[0], 0);
  EXPECT_EQ(viterbi(spans(), x.view())[0].score, 0);
  EXPECT_TRUE(viterbi(spans(), x.view())[0].labels.empty());
  EXPECT_EQ(k_best(spans(), x.view(), 3)[0].size(), 1u);
  EXPECT_EQ(entropy(spans(), x.view())[0], 0);
  EXPECT_EQ(sample(spans(), x.view())[0].size(), 1u);
  EXPECT_EQ(language_mass(spans(), x.view())[0], 0);
  EXPECT_EQ(nll<float>(spans(), x.view(), {}).values[0], 0);
  EXPECT_EQ(log_z(one_span(), x.view())[0], -inf);
  EXPECT_EQ(error_of([&] { viterbi(one_span(), x.view()); }),
            "[viterbi] sequence 0 has length 0, and the language has no sequence of that length (shortest: 2)");
}

TEST(Edges, AnImpossibleLengthIsNamedWithItsNeighbours) {
  const Random<float> x(3, 5);
  EXPECT_EQ(log_z(pairs(), x.view())[0], -inf);
  const std::string rest =
      "sequence 0 has length 5, and the language has no sequence of that length (shortest: 0, nearest below: 4, "
      "nearest above: 6)";
  EXPECT_EQ(error_of([&] { viterbi(pairs(), x.view()); }), "[viterbi] " + rest);
  EXPECT_EQ(error_of([&] { k_best(pairs(), x.view(), 2); }), "[k_best] " + rest);
  EXPECT_EQ(error_of([&] { sample(pairs(), x.view()); }), "[sample] " + rest);
  EXPECT_EQ(error_of([&] { entropy(pairs(), x.view()); }), "[entropy] " + rest);
  EXPECT_EQ(error_of([&] { posterior_decode(pairs(), x.view()); }), "[posterior_decode] " + rest);
  std::vector<float> out(x.emissions.size());
  EXPECT_EQ(error_of([&] { label_marginals<float>(pairs(), x.view(), out); }), "[label_marginals] " + rest);
  const std::vector<Label> gold(5, 0);
  EXPECT_EQ(error_of([&] { nll<float>(pairs(), x.view(), gold); }), "[nll] " + rest);
}

TEST(Edges, TheImpossibleIsAnEmptyAnswerWhereAllowed) {
  const Random<double> x(3, 5);
  Options allow;
  allow.impossible = Impossible::allow;
  EXPECT_EQ(viterbi(pairs(), x.view(), allow)[0].score, -inf);
  EXPECT_TRUE(viterbi(pairs(), x.view(), allow)[0].labels.empty());
  EXPECT_EQ(viterbi_score(pairs(), x.view())[0], -inf);
  EXPECT_TRUE(k_best(pairs(), x.view(), 2, allow)[0].empty());
  EXPECT_TRUE(sample(pairs(), x.view(), {}, allow)[0].empty());
  EXPECT_EQ(language_mass(pairs(), x.view())[0], -inf);
  std::vector<double> out(x.emissions.size(), 7);
  label_marginals<double>(pairs(), x.view(), out, allow);
  EXPECT_EQ(out, std::vector<double>(out.size(), 0));
}

TEST(Edges, ForbiddingEverythingIsNotALength) {
  Random<float> x(3, 4);
  for (int a = 0; a < 3; ++a) x.emissions[2 * 3 + a] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(log_z(spans(), x.view())[0], -inf);
  EXPECT_EQ(error_of([&] { viterbi(spans(), x.view()); }),
            "[viterbi] sequence 0 has length 4, and every sequence of the language of that length has a score of -inf");
}

TEST(Edges, BadNumbersAreNamed) {
  Random<float> x(3, 4);
  x.emissions[2 * 3 + 1] = std::nanf("");
  EXPECT_EQ(error_of([&] { log_z(spans(), x.view()); }),
            "[log_z] sequence 0, position 2: emission score of label B is NaN; scores must be finite or -inf");
  x.emissions[2 * 3 + 1] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(error_of([&] { viterbi(spans(), x.view()); }),
            "[viterbi] sequence 0, position 2: emission score of label B is +inf; scores must be finite or -inf");
  x.emissions[2 * 3 + 1] = 0;
  x.transitions[1 * 3 + 2] = std::nanf("");
  EXPECT_EQ(error_of([&] { log_z(spans(), x.view()); }),
            "[log_z] transition score from label B to I is NaN; scores must be finite or -inf");
  x.transitions[1 * 3 + 2] = 0;
  x.end[2] = std::nanf("");
  EXPECT_EQ(error_of([&] { log_z(spans(), x.view()); }),
            "[log_z] end score of label I is NaN; scores must be finite or -inf");
}

// Of twelve positions, three legal sequences have eight a's each, so that a is the likeliest label everywhere; but
// where all twelve are a, a c has to follow, and its score forbids it.
TEST(Edges, PosteriorDecodingTakesNoPathThatScoresForbid) {
  const Constraint constraint =
      compile(Language::parse("labels = {a b c d}\nlanguage = (b{4} a{8} | a{4} b{4} a{4} | a{8} b{4}) d | a{12} c\n"));
  std::vector<double> emissions(13 * 4, 0.0);
  const Label a = 0, c = 2, d = 3;
  emissions[12 * 4 + c] = -inf;
  const Path path = posterior_decode(constraint, Scores<double>(emissions, {}).with_labels(4))[0];
  EXPECT_EQ(path.labels.back(), d);
  EXPECT_EQ(std::count(path.labels.begin(), path.labels.end(), a), 8);
  EXPECT_NEAR(path.score, 8 * 2 / 3.0 + 4 / 3.0 + 1, 1e-12);
}

// Without transitions every answer is that of transitions that are all 0: in the fast passes, and where scores are so
// far apart that the wide ones have to do it.
template <class Real>
void expect_none_is_zeros(const Constraint& constraint, double spread) {
  Random<Real> random(3, 12, spread, 5);
  std::fill(random.transitions.begin(), random.transitions.end(), Real{0});
  const Scores<Real> zeros = random.view();
  const Scores<Real> none = Scores<Real>(random.emissions, {}).with_start_end(random.start, random.end).with_labels(3);
  const auto path = [](const std::vector<Path>& paths) { return paths[0].labels; };
  EXPECT_DOUBLE_EQ(log_z(constraint, none)[0], log_z(constraint, zeros)[0]);
  EXPECT_EQ(path(viterbi(constraint, none)), path(viterbi(constraint, zeros)));
  EXPECT_DOUBLE_EQ(viterbi(constraint, none)[0].score, viterbi(constraint, zeros)[0].score);
  EXPECT_EQ(path(posterior_decode(constraint, none)), path(posterior_decode(constraint, zeros)));
  EXPECT_NEAR(entropy(constraint, none)[0], entropy(constraint, zeros)[0], 1e-12);
  EXPECT_DOUBLE_EQ(language_mass(constraint, none)[0], language_mass(constraint, zeros)[0]);
  const auto some = k_best(constraint, none, 4)[0], same = k_best(constraint, zeros, 4)[0];
  ASSERT_EQ(some.size(), same.size());
  for (std::size_t k = 0; k < some.size(); ++k) EXPECT_EQ(some[k].labels, same[k].labels);
  EXPECT_EQ(path(sample(constraint, none)[0]), path(sample(constraint, zeros)[0]));
  std::vector<Real> with(36), without(36);
  label_marginals<Real>(constraint, none, without);
  label_marginals<Real>(constraint, zeros, with);
  EXPECT_EQ(without, with);
  const std::vector<Label> gold = viterbi(constraint, zeros)[0].labels;
  std::vector<Real> dh(36), dg(9), dh_none(36), dg_none(9);
  EXPECT_DOUBLE_EQ(nll<Real>(constraint, none, gold, Gradients<Real>{dh_none, dg_none, {}, {}}).values[0],
                   nll<Real>(constraint, zeros, gold, Gradients<Real>{dh, dg, {}, {}}).values[0]);
  EXPECT_EQ(dh_none, dh);
  EXPECT_EQ(dg_none, dg);
}

TEST(Edges, NoTransitionsAreZeros) {
  for (const double spread : {1.0, 100.0, 3000.0}) {
    for (const Constraint& constraint : {spans(), remembers(), Constraint::unconstrained(names())}) {
      expect_none_is_zeros<float>(constraint, spread);
      expect_none_is_zeros<double>(constraint, spread);
    }
  }
}

TEST(Edges, ShapesThatDoNotFitAreNamed) {
  const Random<float> x(3, 4);
  const Random<float> four(4, 3);
  EXPECT_EQ(error_of([&] { log_z(spans(), four.view()); }), "[log_z] scores have 4 labels, the constraint has 3");
  EXPECT_EQ(error_of([&] { Scores(x.emissions, std::span(x.transitions).first(8)); }),
            "[Scores] transitions have 8 entries, which is no square (expected [K, K])");
  EXPECT_EQ(error_of([&] { log_z(spans(), Scores(std::span(x.emissions).first(7), x.transitions)); }),
            "[log_z] emissions have 7 entries, which is no multiple of 3 labels (expected [rows, K])");
  EXPECT_EQ(error_of([&] { log_z(spans(), x.view().with_start_end(four.start, {})); }),
            "[log_z] start has 4 entries, expected 3 ([K])");
  EXPECT_EQ(error_of([&] { k_best(spans(), x.view(), 0); }), "[k_best] k is 0, expected 1 or more");
  EXPECT_EQ(error_of([&] {
              sample(spans(), x.view(), {1, 0, 0.0, {}});
            }),
            "[sample] temperature is 0, expected a number above 0");
}

TEST(Edges, LayoutsThatDoNotFitAreNamed) {
  const Random<float> x(3, 4);
  const std::vector<std::int64_t> first{0, 2}, length{2, 3};
  const std::vector<std::uint8_t> mask(3, 1);
  const auto error = [&](const Layout& layout) { return error_of([&] { log_z(spans(), x.view(layout)); }); };
  EXPECT_EQ(error(Layout::ragged(first, length)),
            "[log_z] sequence 1 starts at row 2 with length 3 and stride 1, past the emissions' 4 rows");
  EXPECT_EQ(error(Layout::padded(2, 3)),
            "[log_z] the layout is padded with B = 2, T = 3, and the emissions have 4 rows; expected B · T");
  EXPECT_EQ(error(Layout::time_first(1, 2)),
            "[log_z] the layout is padded with B = 2, T = 1, and the emissions have 4 rows; expected B · T");
  EXPECT_EQ(error(Layout::padded(2, 2).with_lengths(length)),
            "[log_z] sequence 1 has length 3, and the layout is padded to 2");
  EXPECT_EQ(error(Layout::single().with_mask(mask)), "[log_z] mask has 3 entries, expected 4 ([rows])");
  EXPECT_EQ(error_of([&] { Layout::padded(3, 4).with_lengths(length); }),
            "[Layout] 2 lengths were given for 3 sequences; expected [B]");
}

TEST(Edges, OneLabelAndOneState) {
  const Constraint one = Constraint::unconstrained(Labels({"x"}));
  const Random<double> x(1, 7);
  double sum = x.start[0] + x.end[0] + 6 * x.transitions[0];
  for (double h : x.emissions) sum += h;
  EXPECT_NEAR(log_z(one, x.view())[0], sum, 1e-12);
  EXPECT_NEAR(viterbi(one, x.view())[0].score, sum, 1e-12);
  EXPECT_EQ(k_best(one, x.view(), 5)[0].size(), 1u);
  EXPECT_EQ(entropy(one, x.view())[0], 0);
}

// --- layout ---------------------------------------------------------------------------------------------------------

TEST(Layouts, AMaskedPositionIsAsIfItWereAbsent) {
  const Random<double> x(3, 6);
  const std::vector<std::uint8_t> mask{0, 1, 1, 0, 1, 0};
  const Scores<double> holes = x.view(Layout::single().with_mask(mask));
  std::vector<double> packed;
  for (int t : {1, 2, 4}) packed.insert(packed.end(), x.emissions.begin() + t * 3, x.emissions.begin() + (t + 1) * 3);
  const Scores<double> without = Scores(packed, x.transitions).with_start_end(x.start, x.end);
  EXPECT_EQ(log_z(spans(), holes), log_z(spans(), without));
  EXPECT_EQ(viterbi(spans(), holes)[0].labels, viterbi(spans(), without)[0].labels);
  std::vector<double> out(x.emissions.size(), 7), expected(packed.size());
  label_marginals<double>(spans(), holes, out);
  label_marginals<double>(spans(), without, expected);
  EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + 6, out.begin() + 3));
  EXPECT_EQ(out[0], 7);
  const std::vector<Label> gold{-100, 1, 2, -100, 0, 99}, packed_gold{1, 2, 0};
  std::vector<double> gradient(x.emissions.size(), 7);
  const Loss loss = nll<double>(spans(), holes, gold, {gradient, {}, {}, {}, {}});
  EXPECT_EQ(loss.values, nll<double>(spans(), without, packed_gold).values);
  EXPECT_EQ(gradient[0], 0);  // of an absent position
}

TEST(Layouts, TimeFirstIsBatchFirst) {
  const int B = 3, T = 4, K = 3;
  const Random<float> x(K, B * T);
  std::vector<float> time_first(x.emissions.size());
  for (int i = 0; i < B; ++i) {
    for (int t = 0; t < T; ++t)
      std::copy_n(x.emissions.data() + (i * T + t) * K, K, time_first.data() + (t * B + i) * K);
  }
  const std::vector<std::int64_t> starts{0, T, 2 * T}, lengths{4, 2, 0};
  const Scores<float> rows = x.view(Layout::padded(B, T).with_lengths(lengths));
  const Scores<float> turned =
      Scores(time_first, x.transitions, Layout::time_first(T, B).with_lengths(lengths)).with_start_end(x.start, x.end);
  EXPECT_EQ(log_z(spans(), rows), log_z(spans(), turned));
  EXPECT_EQ(log_z(spans(), rows), log_z(spans(), x.view(Layout::ragged(starts, lengths))));
  for (int i = 0; i < B; ++i) EXPECT_EQ(viterbi(spans(), rows)[i].labels, viterbi(spans(), turned)[i].labels);
}

TEST(Layouts, EachSequenceMayHaveItsOwnConstraint) {
  const Random<double> x(3, 12);
  const Scores<double> scores = x.view(Layout::padded(3, 4));
  const std::vector<Constraint> all{spans(), pairs(), one_span()};
  const std::vector<std::int32_t> which{2, 0, 1}, wrong{0, 3, 1};
  const std::vector<double> z = log_z(Constraints(all, which), scores);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(z[i], log_z(all[which[i]], scores)[i]);
  EXPECT_EQ(error_of([&] { log_z(Constraints(all, wrong), scores); }), "[log_z] sequence 1 asks for constraint 3 of 3");
}

TEST(Layouts, AnEmptyBatchHasNoAnswers) {
  const Random<float> x(3, 2);
  const Scores<float> none = x.view(Layout::ragged({}, {}));
  EXPECT_TRUE(log_z(spans(), none).empty());
  EXPECT_TRUE(viterbi(spans(), none).empty());
  const Scores<float> padded({}, x.transitions, Layout::padded(0, 5));
  EXPECT_TRUE(log_z(spans(), padded).empty());
}

// --- threads, memory, arithmetic ------------------------------------------------------------------------------------

TEST(Threads, DoNotChangeAnAnswer) {
  const int K = 30, B = 40, T = 60;
  const Random<float> x(K, B * T);
  const Constraint constraint = Constraint::unconstrained(numbered_labels(K));
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < B; ++i) lengths.push_back(T - i);
  const Scores<float> scores = x.view(Layout::padded(B, T).with_lengths(lengths));
  Workspace workspace;
  Options many;
  many.threads = 4;
  many.workspace = &workspace;
  for (int repeat = 0; repeat < 3; ++repeat) {
    EXPECT_EQ(log_z(constraint, scores, many), log_z(constraint, scores));
    std::vector<float> one(x.emissions.size()), four(x.emissions.size());
    label_marginals<float>(constraint, scores, one);
    label_marginals<float>(constraint, scores, four, many);
    EXPECT_EQ(one, four);
    const auto samples = sample(constraint, scores, {2, 5, 1, {}}, many),
               again = sample(constraint, scores, {2, 5, 1, {}});
    for (int i = 0; i < B; ++i) EXPECT_EQ(samples[i][1].labels, again[i][1].labels);
  }
}

TEST(Threads, TheFirstSequencesErrorIsThrown) {
  const int K = 30, B = 40, T = 60;
  Random<float> x(K, B * T);
  x.emissions[(7 * T + 3) * K + 2] = std::nanf("");
  x.emissions[(21 * T + 3) * K + 2] = std::nanf("");
  const Scores<float> scores = x.view(Layout::padded(B, T));
  Options many;
  many.threads = 4;
  const std::string error = error_of([&] { log_z(Constraint::unconstrained(numbered_labels(K)), scores, many); });
  EXPECT_NE(error.find("sequence 7, position 3"), std::string::npos) << error;
}

TEST(Memory, CheckpointsDoNotChangeAnAnswer) {
  const Random<double> x(3, 1000);
  Workspace workspace;
  Options few;
  few.keep_bytes = 1000;
  few.workspace = &workspace;
  const Constraint many =  // the same language by so many nodes that one pass serves both
      Constraint::from_automaton(oracle::product(spans().automaton(), oracle::ring(64, 3)), names());
  std::vector<double> all(x.emissions.size()), some(x.emissions.size());
  label_marginals<double>(many, x.view(), all);
  label_marginals<double>(many, x.view(), some, few);
  EXPECT_EQ(all, some);
  label_marginals<double>(spans(), x.view(), all);
  label_marginals<double>(spans(), x.view(), some, few);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], some[i], 1e-10);
  EXPECT_EQ(viterbi(spans(), x.view())[0].labels, viterbi(spans(), x.view(), few)[0].labels);
  EXPECT_EQ(sample(spans(), x.view())[0][0].labels, sample(spans(), x.view(), {}, few)[0][0].labels);
  std::vector<double> dg(9), dg_few(9);
  LossOptions loss_few;
  static_cast<Options&>(loss_few) = few;
  const std::vector<Label> gold(1000, 0);
  nll<double>(spans(), x.view(), gold, {{}, dg, {}, {}, {}});
  nll<double>(spans(), x.view(), gold, {{}, dg_few, {}, {}, {}}, loss_few);
  for (int i = 0; i < 9; ++i) EXPECT_NEAR(dg[i], dg_few[i], 1e-10);
  EXPECT_GE(workspace.statistics().checkpointed, 3);
}

// How often marginals of a sequence had to leave the fastest arithmetic.
template <class Real>
Statistics fallbacks(const Constraint& constraint, const Random<Real>& x) {
  Workspace workspace;
  Options options;
  options.workspace = &workspace;
  std::vector<Real> out(x.emissions.size());
  label_marginals<Real>(constraint, x.view(), out, options);
  return workspace.statistics();
}

Constraint language_of(const std::string& file) {
  std::ifstream in(REGCCRF_SOURCE_DIR "/languages/" + file);
  std::stringstream text;
  text << in.rdbuf();
  return compile(Language::parse(text.str()));
}

TEST(Numbers, OrdinaryScoresStayInFloat) {
  for (const char* file : {"bio.lang", "srl-ewt.lang", "srl.lang"}) {
    const Constraint constraint = language_of(file);
    const int K = constraint.labels().size();
    for (const std::int64_t T : {1, 64, 256}) {
      for (const double spread : {0.1, 1.0, 2.0}) {
        for (unsigned seed = 1; seed <= 5; ++seed)
          EXPECT_EQ(fallbacks(constraint, Random<float>(K, T, spread, seed)).doubled, 0) << file << " " << spread;
      }
    }
    EXPECT_EQ(fallbacks(constraint, Random<double>(K, 1000, 5)).wide, 0) << file;
  }
  EXPECT_EQ(fallbacks(language_of("srl.lang"), Random<float>(47, 64, 5)).doubled, 0);
}

TEST(Numbers, LowScoresForWhatIsForbiddenStayInFloat) {
  Random<float> x(3, 100);
  x.transitions[2] = x.start[2] = -10000;  // as libraries without -inf say it
  for (std::size_t i = 0; i < x.emissions.size(); i += 7) x.emissions[i] = -10000;
  EXPECT_EQ(fallbacks(Constraint::unconstrained(names()), x).doubled, 0);
  EXPECT_EQ(fallbacks(spans(), x).doubled, 0);
}

// A label that nothing leads to but itself, and that every position likes best.
TEST(Numbers, WhatCannotBeReachedDoesNotCount) {
  for (const Constraint& constraint : {Constraint::unconstrained(names()), spans()}) {
    Random<float> x(3, 250);
    for (std::size_t i = 2; i < x.emissions.size(); i += 3) x.emissions[i] += 20;
    x.transitions[2] = x.transitions[5] = x.start[2] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(fallbacks(constraint, x).doubled, 0);
  }
}

// One of two paths is worst at both ends and best in between, so that it vanishes from both directions.
TEST(Numbers, APathThatVanishesFromBothEndsIsCounted) {
  constexpr int T = 14;
  const Constraint either = compile(Language::parse("A* | B*")),
                   everything = Constraint::unconstrained(either.labels());
  constexpr double forbidden = -std::numeric_limits<double>::infinity();
  const std::vector<double> apart = {0, forbidden, forbidden, 0}, none(4, 0.0);
  for (const double ends : {-30.0, -110.0, -400.0, -1000.0, -9000.0}) {
    for (const double surplus : {-1.0, 0.0, 1.0, 500.0}) {
      std::vector<double> h(2 * T, 0.0);
      for (std::size_t t = 0; t < T; ++t) h[2 * t] = t == 0 || t + 1 == T ? ends : (surplus - 2 * ends) / (T - 2);
      const double expected = std::max(surplus, 0.0) + std::log1p(std::exp(-std::abs(surplus)));
      for (const bool constrained : {true, false}) {
        SCOPED_TRACE(std::to_string(ends) + ", " + std::to_string(surplus));
        const Scores scores(h, constrained ? none : apart);
        const Constraint& constraint = constrained ? either : everything;
        EXPECT_NEAR(log_z(constraint, scores).at(0), expected, 1e-9 * std::max(1.0, -20 * ends));
        std::vector<double> marginals(h.size());
        label_marginals<double>(constraint, scores, marginals);
        for (std::size_t t = 0; t < T; ++t)
          EXPECT_NEAR(marginals[2 * t], 1 / (1 + std::exp(-surplus)), 1e-9 * std::max(1.0, -20 * ends));
      }
    }
  }
}

// Scores that add up to nothing over many steps, each of which takes off as much as it brings.
TEST(Numbers, LargeScoresThatCancelLeaveNothing) {
  constexpr std::size_t T = 10000;
  const Constraint forced = compile(Language::parse("B* & [A B]*"));
  const auto other = static_cast<std::size_t>(*forced.labels().find("A"));
  std::vector<double> h(2 * T, 0.0), g(4, 0.0);
  for (std::size_t t = 0; t < T; ++t) h[2 * t + other] = 400 + static_cast<double>(t % 290);
  const Scores scores(h, g);
  EXPECT_NEAR(log_z(forced, scores).at(0), 0, 1e-10);
}

TEST(Numbers, AForcedPathFallsBackAndIsRight) {
  // The only legal ending needs what every step before it thinks impossible.
  const std::int64_t T = 50;
  std::vector<float> h(static_cast<std::size_t>(T) * 3, 0), g(9, 0);
  for (std::int64_t t = 0; t < T; ++t) h[t * 3 + 1] = -5000;
  h[(T - 1) * 3 + 0] = -std::numeric_limits<float>::infinity();
  const Scores scores(h, g);
  Workspace workspace;
  Options options;
  options.workspace = &workspace;
  EXPECT_NEAR(log_z(remembers(), scores, options)[0], -5000.0 * T, 1e-6);
  std::vector<float> out(h.size());
  label_marginals<float>(remembers(), scores, out, options);
  for (std::int64_t t = 0; t < T; ++t) EXPECT_EQ(out[t * 3 + 1], 1);
  EXPECT_GE(workspace.statistics().wide, 1);
}

TEST(Numbers, WhatALanguageRemembersDoesNotDriftOverTime) {
  const std::int64_t T = 100'000;
  std::vector<float> h(static_cast<std::size_t>(T) * 3, 0.1f), g(9, 0.3f);
  const Scores scores(h, g);
  std::vector<float> out(h.size());
  label_marginals<float>(remembers(), scores, out);
  for (std::int64_t t : {std::int64_t{0}, T / 2, T - 1}) EXPECT_NEAR(out[t * 3], 0.5, 1e-6);
  EXPECT_NEAR(entropy(remembers(), scores)[0], std::log(2.0), 1e-9);
}

TEST(Numbers, FiniteScoresBeyondAnyUseAreNoCrash) {
  Random<float> x(3, 20);
  for (std::size_t i = 0; i < x.emissions.size(); i += 2) x.emissions[i] = -std::numeric_limits<float>::max();
  EXPECT_FALSE(std::isnan(log_z(spans(), x.view())[0]));
  EXPECT_FALSE(std::isnan(viterbi(spans(), x.view())[0].score));
  std::vector<float> out(x.emissions.size());
  label_marginals<float>(spans(), x.view(), out);
  for (float p : out) EXPECT_FALSE(std::isnan(p));
}

}  // namespace
}  // namespace regccrf
