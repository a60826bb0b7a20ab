// What the tests of a device share: the suite, batches on it, and the CPU's answers beside its own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "bench/cuda/runner.h"
#include "inference/cuda/step/pieces.h"
#include "regccrf/inference.h"
#include "regccrf/language.h"
#include "regccrf/loss.h"
#include "tests/inference/inference_fixture.h"
#include "tests/inference/triples.h"
#include "tests/oracle/algorithm1.h"
#include "tests/oracle/random.h"

namespace regccrf {

template <class Real>
class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::available()) GTEST_SKIP() << "no CUDA device here";
  }
};
template <class Real>
DeviceBatch<Real> one(const oracle::Scores& scores) {
  const Instance<Real> x(scores);
  return DeviceBatch<Real>(1, scores.length, scores.labels, std::span<const Real>(x.emissions),
                           std::span<const Real>(x.transitions), std::span<const Real>(x.start),
                           std::span<const Real>(x.end));
}

// Of `count` cases, or of a size, REGCCRF_CASES per cent where that is set (an emulated device is slow), at least
// `least`.
inline int cases(int count, int least = 1) {
  const char* percent = std::getenv("REGCCRF_CASES");
  return percent ? std::max(least, count * std::atoi(percent) / 100) : count;
}

// Calls check(triple, enumeration, constraint on the device).
template <class Check>
void for_each_triple(int count, Check check) {
  for (int i = 0; i < cases(count, 100); ++i) {
    const Triple x = triple(i);
    SCOPED_TRACE(x.name);
    check(x, oracle::Enumeration(x.automaton, x.scores), cuda::DeviceConstraint(x.constraint));
    if (::testing::Test::HasFailure()) return;
  }
}

inline const Constraint& srl() {
  static const Constraint constraint =
      Constraint::from_automaton(oracle::algorithm1(oracle::paper_roles()), oracle::role_labels(oracle::paper_roles()));
  return constraint;
}

// The first of `labels` labels at most `most` times; of even length alone if `even`.
inline Constraint counting(int labels, int most, bool even) {
  const int parities = even ? 2 : 1;
  Automaton automaton;
  for (int state = 0; state < (most + 1) * parities; ++state) {
    const int parity = state % parities, next = state - parity + (parity + 1) % parities;
    automaton.accepting.push_back(parity == 0);
    for (int label = 0; label < labels; ++label) {
      if (label > 0 || state / parities < most)
        automaton.arcs.push_back({state, label, label > 0 ? next : next + parities});
    }
  }
  return Constraint::from_automaton(automaton, numbered_labels(labels));
}

// A ragged batch with holes in its mask, against the CPU.
template <class Real>
struct Ragged {
  Ragged(const Constraint& constraint, int size, int length, double spread, std::uint64_t seed, bool holes = true)
      : B(size),
        T(length),
        K(constraint.labels().size()),
        emissions(at(B) * at(T) * at(K)),
        transitions(at(K) * at(K)),
        start(at(K)),
        end(at(K)),
        mask(at(B) * at(T)) {
    oracle::Random random(seed);
    for (auto* numbers : {&emissions, &transitions, &start, &end}) {
      for (Real& x : *numbers) x = static_cast<Real>(static_cast<float>(random.normal() * spread));
    }
    for (int i = 0; i < B; ++i) {
      const int own = random.between(1, T);
      for (int t = 0; t < T; ++t) mask[at(i) * at(T) + at(t)] = t < own && !(holes && random.chance(0.1)) ? 1 : 0;
      mask[at(i) * at(T)] = 1;
    }
  }
  static std::size_t at(int x) { return static_cast<std::size_t>(x); }
  Scores<Real> view() const {
    return Scores(emissions, transitions, Layout::padded(B, T).with_mask(mask)).with_start_end(start, end);
  }
  DeviceBatch<Real> there() const {
    return DeviceBatch<Real>(B, T, K, std::span<const Real>(emissions), std::span<const Real>(transitions),
                             std::span<const Real>(start), std::span<const Real>(end),
                             std::span<const std::uint8_t>(mask));
  }
  int B, T, K;
  std::vector<Real> emissions, transitions, start, end;
  std::vector<std::uint8_t> mask;
};

// Operations in pieces of so many steps.
template <class Real>
DeviceCounts<Real> expectation_in_pieces(const cuda::DeviceConstraint& constraint, const DeviceBatch<Real>& batch,
                                         std::span<const std::int64_t> gold, int steps) {
  const cuda::Pieces pieces = cuda::pieces_of(batch.view().length, steps);
  return run_expectation(
      batch, gold, true,
      [&](const cuda::Expectation& wanted) {
        return cuda::expectation_bytes(constraint, batch.view(), wanted, pieces);
      },
      [&](const cuda::Expectation& wanted, cuda::Memory memory) {
        cuda::expectation(constraint, batch.view(), wanted, pieces, memory, nullptr);
      });
}
template <class Real>
DevicePaths viterbi_in_pieces(const cuda::DeviceConstraint& constraint, const DeviceBatch<Real>& batch, int steps) {
  const cuda::Pieces pieces = cuda::pieces_of(batch.view().length, steps);
  return run_viterbi(
      batch, [&] { return cuda::viterbi_bytes(constraint, batch.view(), pieces); },
      [&](const cuda::Best& best, cuda::Memory memory) {
        cuda::viterbi(constraint, batch.view(), best, pieces, memory, nullptr);
      });
}

// `steps`: of a piece, where the scan is to be used whatever the length; 0: as the library chooses.
template <class Real>
void expect_like_cpu(const Constraint& constraint, const Ragged<Real>& x, int steps = 0) {
  const cuda::DeviceConstraint there(constraint);
  if (steps > 0 && !cuda::can_scan(there)) return;
  const Scores<Real> scores = x.view();
  const std::vector<Path> best = viterbi(constraint, scores, {.impossible = Impossible::allow});
  std::vector<Label> gold(x.mask.size(), -100);
  for (std::size_t i = 0; i < best.size(); ++i) {
    std::size_t n = 0;
    for (std::size_t row = i * static_cast<std::size_t>(x.T); row < (i + 1) * static_cast<std::size_t>(x.T); ++row) {
      if (x.mask[row]) gold[row] = best[i].labels.empty() ? 0 : best[i].labels[n++];
    }
  }
  std::vector<Real> emissions(x.emissions.size()), transitions(x.transitions.size());
  Gradients<Real> gradients;
  gradients.emissions = emissions;
  gradients.transitions = transitions;
  LossOptions options;
  options.outside = OutsideGold::skip;
  const Loss loss = nll(constraint, scores, gold, gradients, options);
  const std::vector<std::int64_t> gold_there(gold.begin(), gold.end());
  const auto got = steps > 0 ? expectation_in_pieces(there, x.there(), gold_there, steps)
                             : run_expectation(there, x.there(), gold_there);
  const std::vector<double> z = log_z(constraint, scores);
  const auto paths = steps > 0 ? viterbi_in_pieces(there, x.there(), steps) : run_viterbi(there, x.there());
  std::vector<double> sums(x.transitions.size()), size(x.transitions.size());
  for (int i = 0; i < x.B; ++i) {
    const auto b = static_cast<std::size_t>(i);
    SCOPED_TRACE("sequence " + std::to_string(i));
    if (z[b] == -inf) {
      EXPECT_NE(got.status[b].outcome, 0);
      EXPECT_EQ(paths.score[b], -inf);
      continue;
    }
    EXPECT_NEAR(loss.values[b], got.value[b], 2 * tolerance<Real> * std::max(1.0, std::fabs(z[b])));
    expect_value(best[b].score, paths.score[b], 2 * tolerance<Real>, "best");
    EXPECT_TRUE(constraint.accepts(paths.labels[b]).accepted);
    for (std::size_t p = 0; p < sums.size(); ++p) {
      sums[p] += static_cast<double>(got.transitions[b * sums.size() + p]);
      size[p] += std::fabs(static_cast<double>(got.transitions[b * sums.size() + p]));
    }
  }
  for (std::size_t i = 0; i < emissions.size(); ++i) {
    if (x.mask[i / static_cast<std::size_t>(x.K)]) {
      ASSERT_NEAR(static_cast<double>(emissions[i]), static_cast<double>(got.emissions[i]), 2 * tolerance<Real>)
          << "emission " << i;
    }
  }
  for (std::size_t p = 0; p < sums.size(); ++p) {
    ASSERT_NEAR(static_cast<double>(transitions[p]), sums[p], 3 * tolerance<Real> * std::max(1.0, size[p] + x.B))
        << "transition " << p;
  }
}

}  // namespace regccrf
