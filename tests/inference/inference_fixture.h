// What the inference tests share: instances in both precisions, tolerances, and comparisons with the oracles.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/scores.h"
#include "tests/oracle/scores.h"

namespace regccrf {

constexpr double inf = std::numeric_limits<double>::infinity();

template <class Real>
constexpr double tolerance = std::is_same_v<Real, float> ? 1e-5 : 1e-10;

inline Labels numbered_labels(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("L" + std::to_string(i));
  return Labels(std::move(names));
}

// An oracle's scores in the library's precision, with the memory behind the view.
template <class Real>
struct Instance {
  explicit Instance(const oracle::Scores& scores)
      : emissions(scores.emissions.begin(), scores.emissions.end()),
        transitions(scores.transitions.begin(), scores.transitions.end()),
        start(scores.start.begin(), scores.start.end()),
        end(scores.end.begin(), scores.end.end()) {}

  Scores<Real> view(const Layout& layout = Layout::single()) const {
    return Scores(emissions, transitions, layout).with_start_end(start, end);
  }

  std::vector<Real> emissions, transitions, start, end;
};

// Within `relative` of max(1, |expected|); infinities must be equal.
inline void expect_value(oracle::Real expected, double actual, double relative, const std::string& what) {
  if (static_cast<oracle::Real>(actual) == expected) return;
  const double bound = relative * std::max(1.0, static_cast<double>(std::fabs(expected)));
  EXPECT_NEAR(static_cast<double>(expected), actual, bound) << what;
}

// Each within `bound`; the first that is not is reported.
template <class Real>
void expect_all(const std::vector<oracle::Real>& expected, const std::vector<Real>& actual, double bound,
                const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(expected[i] - static_cast<oracle::Real>(actual[i])));
    ASSERT_TRUE(difference <= bound) << what << "[" << i << "]: expected " << static_cast<double>(expected[i])
                                     << ", got " << actual[i];
  }
}

// Each within `relative` of max(1, counts[i]): for sums over positions, where counts[i] is how much was added up.
template <class Real>
void expect_all_sums(const std::vector<oracle::Real>& expected, const std::vector<oracle::Real>& counts,
                     const std::vector<Real>& actual, double relative, const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double bound = relative * std::max(1.0, static_cast<double>(counts[i]));
    ASSERT_NEAR(static_cast<double>(expected[i]), static_cast<double>(actual[i]), bound) << what << "[" << i << "]";
  }
}

using Precisions = ::testing::Types<float, double>;

}  // namespace regccrf
