// Derivatives of log_z against finite differences of what they are derivatives of.
#include <gtest/gtest.h>

#include <random>

#include "regccrf/language.h"
#include "regccrf/loss.h"

namespace regccrf {
namespace {

// Scores and a direction for them: sequences of length 4, 0 and 3 over three labels, with a masked position.
struct Case {
  static constexpr int K = 3;
  Constraint constraint = compile(Language::parse("(O | B I*)* & at_most(1, B)"));
  std::vector<double> h, g, s, e, vh, vg, vs, ve;
  std::vector<std::int64_t> first{0, 4, 4}, length{4, 0, 4};
  std::vector<std::uint8_t> mask{1, 1, 1, 1, 1, 0, 1, 1};
  std::vector<double> weights{2, 1, -0.5};

  Case() {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<double>& x, std::size_t size) {
      for (std::size_t i = 0; i < size; ++i) x.push_back(normal(random));
    };
    for (auto* x : {&h, &vh}) fill(*x, 8 * K);
    for (auto* x : {&g, &vg}) fill(*x, K * K);
    for (auto* x : {&s, &e, &vs, &ve}) fill(*x, K);
  }
  Scores<double> scores() const {
    return Scores(h, g, Layout::ragged(first, length).with_mask(mask)).with_start_end(s, e);
  }
  Direction<double> direction() const { return {vh, vg, vs, ve}; }
  void move(double step) {
    const auto add = [&](std::vector<double>& x, const std::vector<double>& v) {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += step * v[i];
    };
    add(h, vh), add(g, vg), add(s, vs), add(e, ve);
  }
};

// All gradients in one row.
struct All {
  std::vector<double> h = std::vector<double>(24), g = std::vector<double>(9), s = std::vector<double>(3),
                      e = std::vector<double>(3);
  Gradients<double> wanted(const Case& x) { return {h, g, s, e, x.weights}; }
  std::vector<double> row() const {
    std::vector<double> all = h;
    for (const auto* part : {&g, &s, &e}) all.insert(all.end(), part->begin(), part->end());
    return all;
  }
};

TEST(LogZ, GradientsComeWithItsValues) {
  const Case x;
  All all;
  const Loss loss = log_z(x.constraint, x.scores(), all.wanted(x));
  EXPECT_EQ(loss.values, log_z(x.constraint, x.scores()));
  for (std::size_t a = 15; a < 18; ++a) EXPECT_EQ(all.h[a], 0) << "a masked position";
  double first = 0;
  for (int a = 0; a < Case::K; ++a) first += all.h[a];
  EXPECT_NEAR(first, x.weights[0], 1e-12) << "marginals times the weight";
}

TEST(Curvature, IsTheChangeOfTheGradients) {
  Case x;
  All along, above, below;
  const Loss slope = curvature(x.constraint, x.scores(), x.direction(), along.wanted(x));
  const double step = 1e-5;
  x.move(step);
  const Loss up = log_z(x.constraint, x.scores(), above.wanted(x));
  x.move(-2 * step);
  const Loss down = log_z(x.constraint, x.scores(), below.wanted(x));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(slope.values[i], (up.values[i] - down.values[i]) / (2 * step), 1e-8);
  const auto exact = along.row(), more = above.row(), less = below.row();
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(exact[i], (more[i] - less[i]) / (2 * step), 1e-8) << i;
}

TEST(Curvature, IsTheSameInLittleMemory) {
  const Case x;
  All kept, again;
  Options little;
  little.keep_bytes = 0;
  EXPECT_EQ(curvature(x.constraint, x.scores(), x.direction(), kept.wanted(x)).values,
            curvature(x.constraint, x.scores(), x.direction(), again.wanted(x), little).values);
  EXPECT_EQ(kept.row(), again.row());
}

TEST(Curvature, OfWhatIsImpossibleIsAnErrorOrNothing) {
  Case x;
  x.constraint = compile(Language::parse("O O O O | ()", x.constraint.labels()));  // none of length 3
  All all;
  EXPECT_THROW(curvature(x.constraint, x.scores(), x.direction(), all.wanted(x)), Error);
  Options options;
  options.impossible = Impossible::allow;
  std::fill(all.h.begin(), all.h.end(), 7.0);
  EXPECT_EQ(curvature(x.constraint, x.scores(), x.direction(), all.wanted(x), options).values[2], 0);
  for (std::size_t i = 12; i < 24; ++i) EXPECT_EQ(all.h[i], 0);
}

TEST(Curvature, NamesWhatHasTheWrongSize) {
  Case x;
  x.vg.pop_back();
  All all;
  EXPECT_THROW(curvature(x.constraint, x.scores(), x.direction(), all.wanted(x)), Error);
}

}  // namespace
}  // namespace regccrf
