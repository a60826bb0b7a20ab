// The paper's Appendix C, with OpenFst as the judge: shortest distance is log_z, shortest path is Viterbi's.
#include "regccrf/bigram_fst.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "regccrf/inference.h"
#include "regccrf/language.h"
#include "tests/oracle/shortest_distance.h"

namespace regccrf {
namespace {

class BigramFst : public testing::Test {
 protected:
  ~BigramFst() override { std::filesystem::remove(path_); }

  // Scores for one sequence of length T, with start and end scores or without.
  Scores<double> scores(const Constraint& constraint, int T, bool boundaries) {
    const int K = constraint.labels().size();
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<double>& values, std::size_t size) {
      values.resize(size);
      for (double& value : values) value = normal(random_);
    };
    fill(emissions_, std::size_t(T) * K);
    fill(transitions_, std::size_t(K) * K);
    fill(start_, boundaries ? K : 0);
    fill(end_, boundaries ? K : 0);
    return Scores(emissions_, transitions_).with_start_end(start_, end_);
  }

  std::mt19937 random_{1};
  std::vector<double> emissions_, transitions_, start_, end_;
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("regccrf_bigram_" + std::to_string(::getpid()))).string();
};

const char* const kPatterns[] = {"(O | B I*)*", "(A B)* | (A C)* A", ".* A . B .*", "(A | B)* A (A | B){3}",
                                 "(O | B I* O* B I*)*"};

TEST_F(BigramFst, ShortestDistanceIsLogZ) {
  for (const char* pattern : kPatterns) {
    const Constraint constraint = compile(Language::parse(pattern));
    for (int T : {1, 2, 5, 12}) {
      const Scores<double> given = scores(constraint, T, T % 2 == 0);
      const double expected = log_z<double>(constraint, given)[0];
      write_scored_fst(constraint, given, Semiring::log64, path_);
      const double distance = oracle::total_weight(path_);
      if (std::isinf(expected)) {
        EXPECT_TRUE(std::isinf(distance)) << pattern << " " << T;
      } else {
        EXPECT_NEAR(-distance, expected, 1e-9 * std::max(1.0, std::abs(expected))) << pattern << " " << T;
      }
    }
  }
}

TEST_F(BigramFst, ShortestPathIsViterbis) {
  for (const char* pattern : kPatterns) {
    const Constraint constraint = compile(Language::parse(pattern));
    const int T = 6;
    const Scores<double> given = scores(constraint, T, true);
    Options options;
    options.impossible = Impossible::allow;
    const Path best = viterbi<double>(constraint, given, options)[0];
    write_scored_fst(constraint, given, Semiring::tropical, path_);
    std::vector<std::string> bigrams;
    for (std::size_t t = 0; t < best.labels.size(); ++t) {
      const std::string next = t + 1 < best.labels.size() ? constraint.labels().name(best.labels[t + 1]) : "$";
      bigrams.push_back(constraint.labels().name(best.labels[t]) + "|" + next);
    }
    EXPECT_EQ(oracle::shortest_path_outputs(path_), bigrams) << pattern;
  }
}

TEST_F(BigramFst, TheTopologyHasOnePathPerSequence) {
  for (const char* pattern : kPatterns) {
    const Language language = Language::parse(pattern);
    write_bigram_fst(compile(language), path_);
    for (int n = 0; n <= 6; ++n)
      EXPECT_EQ(std::to_string(oracle::paths_of_length(path_, n)), language.count(n)) << pattern << " " << n;
  }
}

TEST_F(BigramFst, TheEmptySequence) {
  const Constraint with = compile(Language::parse("A*")), without = compile(Language::parse("A+"));
  write_scored_fst(with, scores(with, 0, false), Semiring::log64, path_);
  EXPECT_EQ(oracle::total_weight(path_), 0);
  write_scored_fst(without, scores(without, 0, false), Semiring::log64, path_);
  EXPECT_TRUE(std::isinf(oracle::total_weight(path_)));
}

TEST_F(BigramFst, ScoresOfOtherLabelsAreRefused) {
  const Constraint one = compile(Language::parse("A*")), two = compile(Language::parse("(A | B)*"));
  EXPECT_THROW(write_scored_fst(two, scores(one, 3, false), Semiring::log, path_), Error);
}

}  // namespace
}  // namespace regccrf
