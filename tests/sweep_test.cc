// The sweeps that a GPU runs, run here by plain loops: they say the same as the library on the CPU.
#include "inference/sweep.h"

#include <gtest/gtest.h>

#include <cmath>

#include "inference_fixture.h"
#include "oracle/algorithm1.h"
#include "oracle/random.h"
#include "regccrf/inference.h"
#include "regccrf/language.h"

namespace regccrf {
namespace {

using Numbers = std::vector<double>;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

struct Model {
  int T, K;
  Numbers h, g, start, end;  // weights, not logs
};

double entry_of(const Model& model, std::int32_t entry) { return entry < 0 ? 0 : model.g[at(entry)]; }

// One step: extras, then every cell by the schedule's units, as a device does it; each cell must be done once.
Numbers step(const Sweep& sweep, const Schedule& schedule, bool thin_by_thread, const Model& model, Numbers now,
             const double* w) {
  for (std::int32_t i = 0; i < sweep.extras; ++i) {
    double sum = 0;
    for (std::int32_t j = sweep.extra_begin[at(i)]; j < sweep.extra_begin[at(i) + 1]; ++j)
      sum += now[at(sweep.extra_source[at(j)])];
    now[at(sweep.zero() + 1 + i)] = sum;
  }
  Numbers next(now.size(), 0);
  std::vector<int> done(at(sweep.cells), 0);
  const auto put = [&](std::int32_t cell, double sum) {
    ++done[at(cell)];
    const std::int32_t label = sweep.label[at(cell)];
    next[at(cell)] = label < sweep.K ? sum * w[label] : 0;
  };
  const auto thin = [&](std::int32_t i) {
    double sum = 0;
    for (std::int32_t s = 0; s < sweep.thin_slots; ++s) {
      const Source from = sweep.thin_source[at(s * sweep.thin + i)];
      sum += (now[at(from.x)] + now[at(from.y)]) * entry_of(model, sweep.thin_entry[at(s * sweep.thin + i)]);
    }
    put(sweep.first_thin + i, sum);
  };
  for (const Unit& unit : schedule.units) {
    if (unit.group < 0) {
      for (std::int32_t i = unit.first; i < std::min(unit.first + 32, sweep.thin); ++i) thin(i);
      continue;
    }
    const SweepGroup& group = sweep.groups[at(unit.group)];
    for (std::int32_t item = unit.first; item < std::min(unit.first + 32 / unit.lanes, group.states * group.tiles);
         ++item) {
      const std::int32_t tile = item / group.states, state = item % group.states;
      for (std::int32_t o = tile * kTile; o < std::min((tile + 1) * kTile, group.width); ++o) {
        double sum = 0;
        for (std::int32_t i = 0; i < group.slots; ++i) {
          const Source from = sweep.source[at(group.first_source + state * group.slots + i)];
          sum += (now[at(from.x)] + now[at(from.y)]) *
                 entry_of(model, sweep.entry[at(group.first_entry + i * group.width + o)]);
        }
        put(group.first_cell + o * group.states + state, sum);
      }
    }
  }
  for (std::int32_t i = 0; thin_by_thread && i < sweep.thin; ++i) thin(i);
  for (const int times : done) EXPECT_EQ(times, 1);
  return next;
}

// x is what a cell has before its own emission counts.
struct Steps {
  std::vector<Numbers> v, x;  // [T] by position
};

Steps walk(const Sweep& sweep, const Schedule& schedule, bool thin_by_thread, const Model& model, bool back) {
  Steps steps;
  steps.v.resize(at(model.T));
  steps.x.resize(at(model.T));
  const Numbers ones(at(model.K), 1);
  for (int n = 0; n < model.T; ++n) {
    const std::size_t t = at(back ? model.T - 1 - n : n), before = at(back ? model.T - n : n - 1);
    const double* w = model.h.data() + t * at(model.K);
    if (n > 0) {
      steps.v[t] = step(sweep, schedule, thin_by_thread, model, steps.v[before], w);
      steps.x[t] = step(sweep, schedule, thin_by_thread, model, steps.v[before], ones.data());
      continue;
    }
    steps.v[t].assign(at(sweep.all_cells()), 0);
    steps.x[t] = steps.v[t];
    for (std::int32_t c = 0; c < sweep.cells; ++c) {
      const std::int32_t label = sweep.label[at(c)];
      if (!sweep.begins[at(c)]) continue;
      steps.x[t][at(c)] = (back ? model.end : model.start)[at(label)];
      steps.v[t][at(c)] = steps.x[t][at(c)] * w[label];
    }
  }
  return steps;
}

Numbers exponentials(const std::vector<double>& scores, std::size_t size) {
  Numbers weights(size, 1);
  for (std::size_t i = 0; i < scores.size(); ++i) weights[i] = std::exp(scores[i]);
  return weights;
}

void expect_like_inference(const Constraint& constraint, const oracle::Scores& scores) {
  const Instance<double> instance(scores);
  const Model model{scores.length,
                    scores.labels,
                    exponentials(scores.emissions, scores.emissions.size()),
                    exponentials(scores.transitions, scores.transitions.size()),
                    exponentials(scores.start, at(scores.labels)),
                    exponentials(scores.end, at(scores.labels))};
  const double z = log_z(constraint, instance.view()).at(0);
  std::vector<double> marginals(instance.emissions.size());
  label_marginals<double>(constraint, instance.view(), marginals, {.impossible = Impossible::allow});

  const Sweep forward = forward_sweep(constraint.topology(), 32), backward = backward_sweep(constraint.topology(), 32);
  const Join join = make_join(constraint.topology(), forward, backward);
  for (const bool resident : {false, true}) {
    if (resident && (forward.resident.warps == 0 || backward.resident.warps == 0)) continue;
    const Steps alpha = walk(forward, resident ? forward.resident : forward.general, resident, model, false);
    const Steps beta = walk(backward, resident ? backward.resident : backward.general, resident, model, true);
    for (int t = 0; t < model.T; ++t) {
      Numbers weight(at(model.K), 0);
      double total = 0;
      for (std::int32_t a = 0; a < model.K; ++a) {
        for (std::int32_t k = join.label_begin[at(a)]; k < join.label_begin[at(a) + 1]; ++k) {
          double in = alpha.v[at(t)][at(join.first[at(k)].x)] + alpha.v[at(t)][at(join.first[at(k)].y)];
          for (std::int32_t i = join.begin[at(k)]; i < join.begin[at(k) + 1]; ++i)
            in += alpha.v[at(t)][at(join.source[at(i)])];
          weight[at(a)] += in * beta.x[at(t)][at(join.cell[at(k)])];
        }
        total += weight[at(a)];
      }
      if (z == -inf) {
        EXPECT_EQ(total, 0);
        continue;
      }
      EXPECT_NEAR(std::log(total), z, 1e-9 * std::max(1.0, std::fabs(z)));
      for (std::int32_t a = 0; a < model.K; ++a)
        EXPECT_NEAR(weight[at(a)] / total, marginals[at(t) * at(model.K) + at(a)], 1e-9);
    }
  }
}

TEST(Sweep, RandomLanguages) {
  bool resident = false, extras = false, two = false, groups = false;
  for (int i = 0; i < 150; ++i) {
    oracle::Random random(static_cast<std::uint64_t>(i) + 900);
    const int labels = random.between(1, 14);
    const Automaton automaton =
        oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, random.between(1, 14));
    const Constraint constraint = Constraint::from_automaton(automaton, numbered_labels(labels));
    SCOPED_TRACE("language " + std::to_string(i));
    expect_like_inference(constraint,
                          oracle::random_scores(random, oracle::ScoreKind::normal, random.between(1, 7), labels, true));
    for (const Sweep& sweep : {forward_sweep(constraint.topology(), 32), backward_sweep(constraint.topology(), 32)}) {
      resident = resident || sweep.resident.warps > 0;
      extras = extras || sweep.extras > 0;
      two = two || sweep.two;
      groups = groups || !sweep.groups.empty();
    }
    if (HasFailure()) return;
  }
  EXPECT_TRUE(resident && extras && two && groups);
}

TEST(Sweep, TheSrlLanguageIsResident) {
  const Constraint srl =
      Constraint::from_automaton(oracle::algorithm1(oracle::paper_roles()), oracle::role_labels(oracle::paper_roles()));
  EXPECT_GT(forward_sweep(srl.topology(), 32).resident.warps, 0);
  EXPECT_GT(backward_sweep(srl.topology(), 32).resident.warps, 0);
  oracle::Random random(3);
  expect_like_inference(srl, oracle::random_scores(random, oracle::ScoreKind::normal, 6, 47, true));
}

}  // namespace
}  // namespace regccrf
