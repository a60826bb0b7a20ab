// loss.h at its edges: gold that is not legal, what is skipped, weights, and gradients against differences of values.
#include "regccrf/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>

#include "tests/inference/inference_fixture.h"

namespace regccrf {
namespace {

const Labels& names() {
  static const Labels labels({"O", "B", "I"});
  return labels;
}

// (O | B I*)*
Constraint spans() {
  Automaton automaton;
  automaton.accepting = {1, 1};
  automaton.arcs = {{0, 0, 0}, {0, 1, 1}, {1, 0, 0}, {1, 1, 1}, {1, 2, 1}};
  return Constraint::from_automaton(automaton, names());
}

struct Data {
  explicit Data(std::int64_t T) : h(static_cast<std::size_t>(T) * 3), g(9), start(3), end(3) {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    for (auto* v : {&h, &g, &start, &end}) {
      for (double& x : *v) x = normal(random);
    }
  }
  Scores<double> view(const Layout& layout = Layout::single()) const {
    return Scores(h, g, layout).with_start_end(start, end);
  }
  std::vector<double> h, g, start, end;
};

std::string error_of(const std::function<void()>& job) {
  try {
    job();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Gold, OutsideTheLanguageIsNamedWhereItLeaves) {
  const Data x(4);
  const std::vector<Label> gold{0, 0, 2, 0};
  EXPECT_EQ(error_of([&] { nll<double>(spans(), x.view(), gold); }),
            "[nll] sequence 0: the correct labels leave the language at position 2 with label I; possible there: O, B");
}

// The kind and the place of an error are fields: nobody has to read its message.
struct Fields {
  ErrorKind kind;
  std::optional<std::int64_t> sequence, position;
  bool operator==(const Fields&) const = default;
};
std::optional<Fields> fields_of(const std::function<void()>& job) {
  try {
    job();
  } catch (const Error& error) {
    return Fields{error.kind(), error.sequence(), error.position()};
  }
  return std::nullopt;
}

TEST(Errors, HaveAKindAndAPlace) {
  Data x(4);
  const std::vector<std::int64_t> first{0, 1}, length{1, 3};
  const Scores<double> two = x.view(Layout::ragged(first, length));
  const auto loss = [&](const Constraint& constraint, const std::vector<Label>& gold) {
    return fields_of([&] { nll<double>(constraint, two, gold); });
  };
  EXPECT_EQ(loss(spans(), {0, 0, 1, 2}), std::nullopt);
  EXPECT_EQ(loss(spans(), {0, 0, 2, 0}), (Fields{ErrorKind::outside, 1, 1}));
  EXPECT_EQ(loss(spans(), {0, 0, 7, 0}), (Fields{ErrorKind::invalid, 1, 1}));
  Automaton even;  // (O O)*
  even.accepting = {1, 0};
  even.arcs = {{0, 0, 1}, {1, 0, 0}};
  EXPECT_EQ(loss(Constraint::from_automaton(even, names()), {0, 0, 0, 0}),
            (Fields{ErrorKind::impossible, 0, std::nullopt}));
  x.h[3 * 3] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(loss(spans(), {0, 0, 0, 0}), (Fields{ErrorKind::invalid, 1, 2}));
}

TEST(Gold, ThatEndsTooEarlyIsNamed) {
  Automaton automaton;  // (O O)* B: odd lengths
  automaton.accepting = {0, 0, 1, 0};
  automaton.arcs = {{0, 0, 1}, {1, 0, 0}, {0, 1, 2}, {0, 2, 3}, {3, 2, 2}};
  const Constraint constraint = Constraint::from_automaton(automaton, names());
  const Data x(2);
  const std::vector<Label> gold{0, 0};
  EXPECT_EQ(error_of([&] { nll<double>(constraint, x.view(), gold); }),
            "[nll] sequence 0: the correct labels end too early, at position 2; possible there: O, B, I");
}

TEST(Gold, MustBeLabels) {
  const Data x(2);
  const std::vector<Label> gold{0, 3};
  EXPECT_EQ(error_of([&] { nll<double>(spans(), x.view(), gold); }),
            "[nll] sequence 0, position 1: label 3 is not in 0 … 2");
}

TEST(Gold, ThatIsForbiddenByScoresIsAnError) {
  Data x(2);
  x.h[1] = -inf;
  const std::vector<Label> gold{1, 0};
  EXPECT_NE(error_of([&] { nll<double>(spans(), x.view(), gold); }).find("the correct labels have a score of -inf"),
            std::string::npos);
}

TEST(Gold, OutsideTheLanguageIsSkippedAndCountedAtTheCallersWord) {
  const Data x(6);
  const Scores<double> scores = x.view(Layout::padded(2, 3));
  const std::vector<Label> gold{2, 0, 0, 0, 1, 2};
  LossOptions options;
  options.outside = OutsideGold::skip;
  std::vector<double> dh(x.h.size(), 7), dg(9);
  const Loss loss = nll<double>(spans(), scores, gold, {dh, dg, {}, {}, {}}, options);
  EXPECT_EQ(loss.skipped, (std::vector<std::uint8_t>{1, 0}));
  EXPECT_EQ(loss.skipped_count(), 1);
  EXPECT_EQ(loss.values[0], 0);
  EXPECT_GT(loss.values[1], 0);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(dh[i], 0);
  double sum = 0;
  for (double d : dg) sum += d;
  EXPECT_NEAR(sum, 0, 1e-12);  // two expected bigrams minus two observed ones
}

TEST(Reduction, IsDividedByWhatCounts) {
  const std::vector<std::int64_t> lengths{3, 0, 5};
  const std::vector<std::uint8_t> last{0, 0, 1}, all{1, 1, 1};
  const auto divisors = [&](std::span<const std::uint8_t> skipped, std::span<const std::int64_t> some) {
    return std::vector<double>{divisor(Reduction::sum, skipped, some), divisor(Reduction::mean, skipped, some),
                               divisor(Reduction::token_mean, skipped, some)};
  };
  EXPECT_EQ(divisors({}, lengths), (std::vector<double>{1, 3, 8}));
  EXPECT_EQ(divisors(last, lengths), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(divisors(all, lengths), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(divisors({}, {}), (std::vector<double>{1, 1, 1}));
}

TEST(Gold, PartialGoldThatAllowsNothingIsAnError) {
  const Data x(3);
  const std::vector<std::uint8_t> allowed{0, 0, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_NE(error_of([&] {
              partial_nll<double>(spans(), x.view(), allowed);
            }).find("no sequence of the language with a finite score is allowed"),
            std::string::npos);
}

// Central differences of Σ weight · value, for every score.
void expect_gradients(const Data& x, const Layout& layout, const std::vector<double>& weights,
                      const std::function<Loss(const Scores<double>&, const Gradients<double>&)>& loss) {
  Data gradient(0);
  gradient.h.resize(x.h.size());
  loss(x.view(layout), {gradient.h, gradient.g, gradient.start, gradient.end, weights});
  const auto value = [&](const Data& data) {
    const Loss at = loss(data.view(layout), {});
    double sum = 0;
    for (std::size_t i = 0; i < at.values.size(); ++i) sum += weights[i] * at.values[i];
    return sum;
  };
  const std::vector<double> Data::*parts[] = {&Data::h, &Data::g, &Data::start, &Data::end};
  for (auto part : parts) {
    for (std::size_t i = 0; i < (x.*part).size(); ++i) {
      Data up = x, down = x;
      const double step = 1e-5;
      const_cast<std::vector<double>&>(up.*part)[i] += step;
      const_cast<std::vector<double>&>(down.*part)[i] -= step;
      EXPECT_NEAR((gradient.*part)[i], (value(up) - value(down)) / (2 * step), 1e-7);
    }
  }
}

class LossGradients : public ::testing::Test {
 protected:
  const Data x{7};
  const std::vector<std::int64_t> first{0, 3}, length{3, 4};
  const Layout layout = Layout::ragged(first, length);
  const std::vector<double> weights{0.5, -2};
};

TEST_F(LossGradients, OfNll) {
  const std::vector<Label> gold{1, 2, 0, 0, 1, 1, 2};
  expect_gradients(x, layout, weights, [&](const auto& s, const auto& g) { return nll<double>(spans(), s, gold, g); });
}
TEST_F(LossGradients, OfPartialNll) {
  std::vector<std::uint8_t> allowed(x.h.size(), 1);
  allowed[0] = allowed[7] = allowed[16] = 0;
  expect_gradients(x, layout, weights,
                   [&](const auto& s, const auto& g) { return partial_nll<double>(spans(), s, allowed, g); });
}
TEST_F(LossGradients, OfEntropy) {
  expect_gradients(x, layout, weights, [&](const auto& s, const auto& g) { return entropy<double>(spans(), s, g); });
}
TEST_F(LossGradients, OfLanguageMass) {
  expect_gradients(x, layout, weights,
                   [&](const auto& s, const auto& g) { return language_mass<double>(spans(), s, g); });
}

}  // namespace
}  // namespace regccrf
