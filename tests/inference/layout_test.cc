// The sweeps that a GPU runs, run here by plain loops: they say the same as the library on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "inference/cuda/layout/combine.h"
#include "inference/cuda/layout/step.h"
#include "regccrf/inference.h"
#include "regccrf/language.h"
#include "regccrf/loss.h"
#include "tests/inference/inference_fixture.h"
#include "tests/oracle/algorithm1.h"
#include "tests/oracle/random.h"

namespace regccrf {
namespace {

using Numbers = std::vector<double>;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

struct Model {
  int T, K;
  Numbers h, g, start, end;  // weights, not logs
};

double entry_of(const Model& model, std::int32_t entry) { return entry < 0 ? 0 : model.g[at(entry)]; }

double from_sources(const Sweep& sweep, const SweepGroup& group, const Numbers& now, std::int32_t state,
                    std::int32_t i) {
  const Source from = sweep.source[at(group.first_source + state * group.slots + i)];
  return now[at(from.x)] + now[at(from.y)];
}

double from_rows(const SweepGroup& group, const Numbers& now, std::int32_t state, std::int32_t i) {
  double sum = 0;
  for (std::int32_t plane = 0; plane < group.planes; ++plane)
    sum += now[at(group.first_cell + (plane * group.states + state) * group.stride + i)];
  return sum;
}

// One step: extras, then every cell by the schedule's units, as a device does it; each cell must be done once.
Numbers step(const Sweep& sweep, const Schedule& schedule, bool resident, const Model& model, Numbers now,
             const double* w) {
  for (std::int32_t i = 0; i < sweep.extras; ++i) {
    double sum = 0;
    for (std::int32_t j = sweep.extra_begin[at(i)]; j < sweep.extra_begin[at(i) + 1]; ++j)
      sum += now[at(sweep.extra_source[at(j)])];
    now[at(sweep.zero() + 1 + i)] = sum;
  }
  Numbers next(now.size(), 0);
  std::vector<int> done(at(sweep.outs), 0);
  const auto put = [&](std::int32_t out, double sum) {
    ++done[at(out)];
    const std::int32_t label = sweep.label[at(out)];
    next[at(sweep.stored[at(out)])] = label < sweep.K ? sum * w[label] : 0;
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
    const std::int32_t band = resident ? group.band : group.states;
    for (std::int32_t item = unit.first; item < std::min(unit.first + 32 / unit.lanes, band * group.tiles); ++item) {
      const std::int32_t tile = item / band;
      for (std::int32_t state = item % band; state < group.states; state += band) {
        for (std::int32_t o = tile * kTile; o < std::min((tile + 1) * kTile, group.width); ++o) {
          double sum = 0;
          for (std::int32_t i = 0; i < group.slots; ++i) {
            sum += (resident ? from_rows(group, now, state, i) : from_sources(sweep, group, now, state, i)) *
                   entry_of(model, sweep.entry[at(group.first_entry + i * group.width + o)]);
          }
          put(group.first_out + state * group.width + o, sum);
        }
      }
    }
  }
  for (std::int32_t i = 0; resident && i < sweep.thin; ++i) thin(i);
  for (const int times : done) EXPECT_EQ(times, 1);
  return next;
}

// x is what a cell has before its own emission counts.
struct Steps {
  std::vector<Numbers> v, x;  // [T] by position
};

Steps walk(const Sweep& sweep, const Schedule& schedule, bool resident, const Model& model, bool back) {
  Steps steps;
  steps.v.resize(at(model.T));
  steps.x.resize(at(model.T));
  const Numbers ones(at(model.K), 1);
  for (int n = 0; n < model.T; ++n) {
    const std::size_t t = at(back ? model.T - 1 - n : n), before = at(back ? model.T - n : n - 1);
    const double* w = model.h.data() + t * at(model.K);
    if (n > 0) {
      steps.v[t] = step(sweep, schedule, resident, model, steps.v[before], w);
      steps.x[t] = step(sweep, schedule, resident, model, steps.v[before], ones.data());
      continue;
    }
    steps.v[t].assign(at(sweep.all_cells()), 0);
    steps.x[t] = steps.v[t];
    for (std::int32_t o = 0; o < sweep.outs; ++o) {
      if (!sweep.begins[at(o)]) continue;
      const std::size_t label = at(sweep.label[at(o)]), cell = at(sweep.stored[at(o)]);
      steps.x[t][cell] = (back ? model.end : model.start)[label];
      steps.v[t][cell] = steps.x[t][cell] * w[label];
    }
  }
  return steps;
}

double list_sum(const Numbers& numbers, const std::vector<std::int32_t>& begin, const std::vector<std::int32_t>& list,
                std::size_t k) {
  double sum = 0;
  for (std::int32_t i = begin.empty() ? 0 : begin[k]; !begin.empty() && i < begin[k + 1]; ++i)
    sum += numbers[at(list[at(i)])];
  return sum;
}

// The join, as a device does it: alpha at the arrivals goes to their places.
// `zero`: of the backward sweep
Numbers alpha_at_places(const Join& join, const Numbers& alpha, std::int32_t zero) {
  Numbers m(at(join.places), 0);
  for (std::size_t k = 0; k < join.arrival.size(); ++k) {
    const JoinArrival& arrival = join.arrival[k];
    if (arrival.cell == zero) continue;  // padding
    m[at(arrival.place)] =
        alpha[at(arrival.x)] + alpha[at(arrival.y)] + list_sum(alpha, join.arrival_begin, join.arrival_source, k);
  }
  if (join.copied) {
    for (const Source& pair : join.sparse.pair) {
      if (pair.y >= join.no_out) continue;
      EXPECT_EQ(m[at(pair.x)], alpha[at(pair.x)]);
    }
    for (const JoinGroup& group : join.groups) {
      for (std::int32_t i = 0; i < group.states * group.slots; ++i)
        EXPECT_EQ(m[at(group.first_place + i)], alpha[at(group.first_place + i)]);
    }
  }
  return m;
}

Numbers beta_at_outs(const Join& join, const Model& model, const Steps& beta, int t, std::int32_t zero) {
  Numbers y(join.out.size());
  const double* w = model.h.data() + at(t) * at(model.K);
  for (std::size_t o = 0; o < y.size(); ++o) {
    const JoinOut& out = join.out[o];
    const Numbers& x = beta.x[at(t)];
    y[o] = x[at(out.x)] + x[at(out.y)] + list_sum(x, join.out_begin, join.out_target, o);
    y[o] *= out.label < model.K ? w[out.label] : 0;
  }
  for (std::size_t o = 0; o < 4 * join.quad.size(); ++o) {
    const Numbers& v = beta.v[at(t)];
    const Source& quad = join.quad[o / 4];
    const auto in_quad = [&](std::int32_t first) { return first == zero ? 0 : v[at(first) + o % 4]; };
    EXPECT_DOUBLE_EQ(in_quad(quad.x) + in_quad(quad.y), y[o]);
  }
  return y;
}

// Each entry's sum.
Numbers bigrams_at(const Join& join, const Numbers& m, const Numbers& y) {
  Numbers sums(at(join.dense + join.sparse.rounds()), 0);
  for (const JoinPatch& patch : join.patches) {
    for (std::int32_t i = 0; i < patch.rows; ++i) {
      for (std::int32_t o = 0; o < patch.columns; ++o) {
        const std::size_t entry = at(patch.entry + i * patch.width + o);
        EXPECT_EQ(sums[entry], 0);  // nobody else's
        for (std::int32_t s = 0; s < patch.states; ++s)
          sums[entry] += m[at(patch.place + s * patch.slots + i)] * y[at(patch.out + s * patch.width + o)];
      }
    }
  }
  for (std::size_t k = 0; k < join.sparse.pair.size(); ++k)
    sums[at(join.dense) + k / at(join.sparse.height)] += m[at(join.sparse.pair[k].x)] * y[at(join.sparse.pair[k].y)];
  return sums;
}

// The same by way of the groups.
Numbers sums_of_groups(const Join& join, const Numbers& m, const Numbers& y) {
  Numbers sums(at(join.dense), 0);
  for (const JoinGroup& group : join.groups) {
    for (std::int32_t s = 0; s < group.states; ++s) {
      for (std::int32_t i = 0; i < group.rows; ++i) {
        for (std::int32_t o = 0; o < group.width; ++o)
          sums[at(group.first_entry + i * group.width + o)] +=
              m[at(group.first_place + s * group.slots + i)] * y[at(group.first_out + s * group.width + o)];
      }
    }
  }
  return sums;
}

Numbers last_weights(const Join& join, const Model& model, const Numbers& alpha) {
  Numbers weight;
  for (std::size_t a = 0; a < at(model.K); ++a)
    weight.push_back(model.end[a] * list_sum(alpha, join.end_begin, join.end_cell, a));
  return weight;
}
// What labels weigh, from pairs of numbers x and y. `w`: of the position, if that is in both.
Numbers label_weights(const JoinRounds& rounds, const Numbers& x, const Numbers& y, const double* w) {
  Numbers weight;
  for (std::size_t a = 0; a + 1 < rounds.begin.size(); ++a) {
    weight.push_back(0);
    for (std::int32_t round = rounds.begin[a]; round < rounds.begin[a + 1]; ++round) {
      EXPECT_EQ(at(rounds.key[at(round)]), a);
      for (std::size_t k = at(rounds.height * round); k < at(rounds.height * (round + 1)); ++k)
        weight[a] += x[at(rounds.pair[k].x)] * y[at(rounds.pair[k].y)] / w[a];
    }
  }
  return weight;
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

  std::vector<double> bigrams(at(model.K) * at(model.K));
  Gradients<double> wanted;
  wanted.transitions = bigrams;
  if (z != -inf) log_z<double>(constraint, instance.view(), wanted);

  const Sweeps sweeps = make_sweeps(constraint.topology(), 32);
  const Join join = make_join(constraint.topology(), sweeps.forward, sweeps.backward);
  for (const bool resident : {false, true}) {
    if (resident && sweeps.forward.kind < 0) continue;
    const auto steps = [&](const Sweep& sweep, bool back) {
      return walk(sweep, resident ? sweep.resident : sweep.general, resident, model, back);
    };
    const Steps alpha = steps(sweeps.forward, false), beta = steps(sweeps.backward, true);
    Numbers sums(at(join.dense + join.sparse.rounds()));
    for (int t = 0; t < model.T; ++t) {
      const Numbers m = alpha_at_places(join, alpha.v[at(t)], sweeps.backward.zero());
      const double* w = model.h.data() + at(t) * at(model.K);
      const Numbers weight = label_weights(join.arrivals, m, beta.v[at(t)], w);
      std::vector<Numbers> others;
      if (join.copied)
        others.push_back(
            label_weights(join.nodes, alpha.v[at(t)], beta_at_outs(join, model, beta, t, sweeps.backward.zero()), w));
      if (t + 1 == model.T) others.push_back(last_weights(join, model, alpha.v[at(t)]));
      if (t + 1 < model.T) {
        const Numbers y = beta_at_outs(join, model, beta, t + 1, sweeps.backward.zero()),
                      groups = sums_of_groups(join, m, y), here = bigrams_at(join, m, y);
        for (std::size_t e = 0; e < sums.size(); ++e) sums[e] += here[e];
        for (std::size_t e = 0; e < groups.size(); ++e) EXPECT_DOUBLE_EQ(groups[e], here[e]);
      }
      const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
      for (const Numbers& other : others) {
        ASSERT_EQ(other.size(), weight.size());
        for (std::size_t a = 0; a < weight.size(); ++a) EXPECT_NEAR(weight[a], other[a], 1e-9 * total);
      }
      if (z == -inf) {
        EXPECT_EQ(total, 0);
        continue;
      }
      EXPECT_NEAR(std::log(total), z, 1e-9 * std::max(1.0, std::fabs(z)));
      for (std::int32_t a = 0; a < model.K; ++a)
        EXPECT_NEAR(weight[at(a)] / total, marginals[at(t) * at(model.K) + at(a)], 1e-9);
    }
    if (z == -inf) continue;
    for (std::size_t ab = 0; ab < bigrams.size(); ++ab) {
      double sum = 0;
      for (std::int32_t e = join.pair_begin[ab]; e < join.pair_begin[ab + 1]; ++e)
        sum += sums[at(join.pair_entry[at(e)])];
      EXPECT_NEAR(sum * model.g[ab] / std::exp(z), bigrams[ab], 1e-8);
    }
  }
}

// A resident sweep's gains are its groups' entries, each where the thread that multiplies with it looks and where the
// path is followed back from its cell, and nothing else.
void expect_gains(const Sweep& sweep) {
  if (sweep.kind < 0) return;
  const ResidentKind kind = kResidentKinds[sweep.kind];
  std::vector<bool> taken(sweep.gain_entry.size());
  for (const SweepGroup& group : sweep.groups) {
    const std::int32_t lanes = group.stride / kind.slots, row = gain_row(group.tiles, lanes);
    for (std::int32_t i = 0; i < group.slots; ++i) {
      for (std::int32_t o = 0; o < group.width; ++o) {
        const std::int32_t four = o % kTile / 4 * (row - 4) / 2, thread = (o / kTile * lanes + i / kind.slots) * 4,
                           place = group.first_gain + i % kind.slots * row + four + thread + o % 4;
        EXPECT_EQ(sweep.gain_entry[at(place)], sweep.entry[at(group.first_entry + i * group.width + o)]);
        EXPECT_FALSE(taken[at(place)]);
        taken[at(place)] = true;
        const std::int32_t out = group.first_out + o;  // of the group's first state
        if (sweep.label[at(out)] == sweep.K) continue;
        const RowOf from = sweep.row_of[at(sweep.stored[at(out)])];
        EXPECT_EQ(from.entry + i % kind.slots * row + i / kind.slots * 4, place);
        EXPECT_EQ(from.row, group.first_cell);
        EXPECT_EQ(from.label, sweep.label[at(out)]);
        EXPECT_EQ(from.begins, sweep.begins[at(out)]);
      }
    }
  }
  for (std::size_t i = 0; i < taken.size(); ++i) EXPECT_TRUE(taken[i] || sweep.gain_entry[i] == -1);
}

TEST(Sweep, RandomLanguages) {
  bool resident = false, extras = false, two = false, groups = false, copied = false, patches = false, quads = false;
  for (int i = 0; i < 150; ++i) {
    oracle::Random random(static_cast<std::uint64_t>(i) + 900);
    const int labels = random.between(1, 14);
    const Automaton automaton =
        oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, random.between(1, 14));
    const Constraint constraint = Constraint::from_automaton(automaton, numbered_labels(labels));
    SCOPED_TRACE("language " + std::to_string(i));
    expect_like_inference(constraint,
                          oracle::random_scores(random, oracle::ScoreKind::normal, random.between(1, 7), labels, true));
    const Sweeps sweeps = make_sweeps(constraint.topology(), 32);
    EXPECT_EQ(sweeps.forward.kind, sweeps.backward.kind);
    const Join join = make_join(constraint.topology(), sweeps.forward, sweeps.backward);
    copied = copied || join.copied;
    patches = patches || !join.patches.empty();
    quads = quads || !join.quad.empty();
    for (const Sweep& sweep : {sweeps.forward, sweeps.backward}) {
      expect_gains(sweep);
      resident = resident || sweep.kind >= 0;
      extras = extras || sweep.extras > 0;
      two = two || sweep.two;
      groups = groups || !sweep.groups.empty();
    }
    if (HasFailure()) return;
  }
  EXPECT_TRUE(resident && extras && two && groups && copied && patches && quads);
}

TEST(Sweep, TheSrlLanguageIsResident) {
  const Constraint srl =
      Constraint::from_automaton(oracle::algorithm1(oracle::paper_roles()), oracle::role_labels(oracle::paper_roles()));
  const Sweeps sweeps = make_sweeps(srl.topology(), 32);
  EXPECT_EQ(sweeps.forward.kind, 1);
  const Join join = make_join(srl.topology(), sweeps.forward, sweeps.backward);
  EXPECT_TRUE(join.copied && !join.quad.empty());
  EXPECT_EQ(join.places, sweeps.forward.cells);
  for (const Sweep& sweep : {sweeps.forward, sweeps.backward}) {
    for (const std::int32_t out : sweep.out) EXPECT_EQ(sweep.out_of[at(sweep.stored[at(out)])], out);
    expect_gains(sweep);
  }
  oracle::Random random(3);
  expect_like_inference(srl, oracle::random_scores(random, oracle::ScoreKind::normal, 6, 47, true));
}

}  // namespace
}  // namespace regccrf
