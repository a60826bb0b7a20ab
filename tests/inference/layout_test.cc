// The layouts that a GPU runs, run here by plain loops: they say the same as the library on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <set>

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

double from_sources(const StepLayout& layout, const DenseGroup& group, const Numbers& now, std::int32_t state,
                    std::int32_t i) {
  const Source from = layout.source[at(group.first_source + state * group.slots + i)];
  return now[at(from.x)] + now[at(from.y)];
}

double from_rows(const DenseGroup& group, const Numbers& now, std::int32_t state, std::int32_t i) {
  double sum = 0;
  for (std::int32_t plane = 0; plane < group.planes; ++plane)
    sum += now[at(group.first_cell + (plane * group.states + state) * group.stride + i)];
  return sum;
}

// One step: fan-ins, then every cell by the schedule's units, as a device does it; each cell must be done once.
Numbers step(const StepLayout& layout, const Schedule& schedule, bool in_registers, const Model& model, Numbers now,
             const double* w) {
  for (std::int32_t i = 0; i < layout.fan_ins; ++i) {
    double sum = 0;
    for (std::int32_t j = layout.fan_in_begin[at(i)]; j < layout.fan_in_begin[at(i) + 1]; ++j)
      sum += now[at(layout.fan_in_source[at(j)])];
    now[at(layout.zero() + 1 + i)] = sum;
  }
  Numbers next(now.size(), 0);
  std::vector<int> done(at(layout.outs), 0);
  const auto put = [&](std::int32_t out, double sum) {
    ++done[at(out)];
    const std::int32_t label = layout.label[at(out)];
    next[at(layout.stored[at(out)])] = label < layout.K ? sum * w[label] : 0;
  };
  const auto sparse = [&](std::int32_t i) {
    double sum = 0;
    for (std::int32_t s = 0; s < layout.sparse_slots; ++s) {
      const Source from = layout.sparse_source[at(s * layout.sparse + i)];
      sum += (now[at(from.x)] + now[at(from.y)]) * entry_of(model, layout.sparse_entry[at(s * layout.sparse + i)]);
    }
    put(layout.first_sparse + i, sum);
  };
  for (const Unit& unit : schedule.units) {
    if (unit.group < 0) {
      for (std::int32_t i = unit.first; i < std::min(unit.first + 32, layout.sparse); ++i) sparse(i);
      continue;
    }
    const DenseGroup& group = layout.groups[at(unit.group)];
    const std::int32_t band = in_registers ? group.band : group.states;
    for (std::int32_t item = unit.first; item < std::min(unit.first + 32 / unit.lanes, band * group.tiles); ++item) {
      const std::int32_t tile = item / band;
      for (std::int32_t state = item % band; state < group.states; state += band) {
        for (std::int32_t o = tile * kTile; o < std::min((tile + 1) * kTile, group.width); ++o) {
          double sum = 0;
          for (std::int32_t i = 0; i < group.slots; ++i) {
            sum += (in_registers ? from_rows(group, now, state, i) : from_sources(layout, group, now, state, i)) *
                   entry_of(model, layout.entry[at(group.first_entry + i * group.width + o)]);
          }
          put(group.first_out + state * group.width + o, sum);
        }
      }
    }
  }
  for (std::int32_t i = 0; in_registers && i < layout.sparse; ++i) sparse(i);
  for (const int times : done) EXPECT_EQ(times, 1);
  return next;
}

// x is what a cell has before its own emission counts.
struct Steps {
  std::vector<Numbers> v, x;  // [T] by position
};

Steps walk(const StepLayout& layout, const Schedule& schedule, bool in_registers, const Model& model, bool back) {
  Steps steps;
  steps.v.resize(at(model.T));
  steps.x.resize(at(model.T));
  const Numbers ones(at(model.K), 1);
  for (int n = 0; n < model.T; ++n) {
    const std::size_t t = at(back ? model.T - 1 - n : n), before = at(back ? model.T - n : n - 1);
    const double* w = model.h.data() + t * at(model.K);
    if (n > 0) {
      steps.v[t] = step(layout, schedule, in_registers, model, steps.v[before], w);
      steps.x[t] = step(layout, schedule, in_registers, model, steps.v[before], ones.data());
      continue;
    }
    steps.v[t].assign(at(layout.all_cells()), 0);
    steps.x[t] = steps.v[t];
    for (std::int32_t o = 0; o < layout.outs; ++o) {
      if (!layout.begins[at(o)]) continue;
      const std::size_t label = at(layout.label[at(o)]), cell = at(layout.stored[at(o)]);
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

// The combine, as a device does it: alpha at the arrivals goes to their places.
Numbers alpha_at_places(const Topology& t, const StepLayout& forward, const CombineLayout& combine,
                        const Numbers& alpha) {
  Numbers m(at(combine.places), 0);
  for (std::int32_t arrival = 0; arrival < t.arrivals; ++arrival) {
    double sum = 0;
    for (std::int32_t i = t.into_begin[arrival]; i < t.into_begin[arrival + 1]; ++i)
      sum += alpha[at(forward.cell(t.into_node[i]))];
    m[at(combine.place[at(arrival)])] = sum;
  }
  if (combine.copied) {
    for (const Source& pair : combine.sparse.pair) {
      if (pair.y >= combine.no_out) continue;
      EXPECT_EQ(m[at(pair.x)], alpha[at(pair.x)]);
    }
    for (const WarpTile& tile : combine.warp_tiles) {
      for (std::int32_t s = 0; s < tile.states; ++s) {
        for (std::int32_t place = tile.place + s * tile.slots, i = 0; i < tile.rows; ++i, ++place)
          EXPECT_EQ(m[at(place)], alpha[at(place)]);
      }
    }
  }
  return m;
}

Numbers beta_at_outs(const Topology& t, const StepLayouts& layouts, const CombineLayout& combine, const Numbers& beta) {
  Numbers y(combine.out.size());
  for (std::int32_t n = 0; n < t.nodes; ++n) {
    for (std::int32_t i = t.from_begin[n]; i < t.from_begin[n + 1]; ++i)
      y[at(layouts.forward.out[at(n)])] += beta[at(layouts.backward.cell(t.from_arrival[i]))];
  }
  const std::int32_t zero = layouts.backward.zero();
  for (std::size_t o = 0; combine.all_out && o < y.size(); ++o) {
    const Source& out = combine.out[o];
    EXPECT_DOUBLE_EQ((out.x == zero ? 0 : beta[at(out.x)]) + (out.y == zero ? 0 : beta[at(out.y)]), y[o]);
  }
  for (std::size_t o = 0; o < 4 * combine.quad.size(); ++o) {
    const Source& quad = combine.quad[o / 4];
    const auto in_quad = [&](std::int32_t first) { return first == zero ? 0 : beta[at(first) + o % 4]; };
    EXPECT_DOUBLE_EQ(in_quad(quad.x) + in_quad(quad.y), y[o]);
  }
  return y;
}

// Each entry's sum.
Numbers bigrams_at(const CombineLayout& combine, const Numbers& m, const Numbers& y) {
  Numbers sums(at(combine.dense + combine.sparse.rounds()), 0);
  for (const WarpTile& tile : combine.warp_tiles) {
    for (std::int32_t i = 0; i < tile.rows; ++i) {
      for (std::int32_t o = 0; o < tile.columns; ++o) {
        const std::size_t entry = at(tile.entry + i * tile.width + o);
        EXPECT_EQ(sums[entry], 0);  // nobody else's
        for (std::int32_t s = 0; s < tile.states; ++s)
          sums[entry] += m[at(tile.place + s * tile.slots + i)] * y[at(tile.out + s * tile.width + o)];
      }
    }
  }
  for (std::size_t k = 0; k < combine.sparse.pair.size(); ++k)
    sums[at(combine.dense) + k / at(combine.sparse.height)] +=
        m[at(combine.sparse.pair[k].x)] * y[at(combine.sparse.pair[k].y)];
  return sums;
}

Numbers last_weights(const CombineLayout& combine, const Model& model, const Numbers& alpha) {
  Numbers weight;
  for (std::size_t a = 0; a < at(model.K); ++a)
    weight.push_back(model.end[a] * list_sum(alpha, combine.end.begin, combine.end.order, a));
  return weight;
}
// The weights of labels, from pairs of numbers x and y. `w`: of the position, if that is in both.
Numbers label_weights(const PairRounds& rounds, const Numbers& x, const Numbers& y, const double* w) {
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

  const StepLayouts layouts = make_step_layouts(constraint.topology(), 32);
  const CombineLayout combine = make_combine_layout(constraint.topology(), layouts.forward, layouts.backward);
  for (const bool in_registers : {false, true}) {
    if (in_registers && layouts.forward.kind < 0) continue;
    const auto steps = [&](const StepLayout& layout, bool back) {
      return walk(layout, in_registers ? layout.in_registers : layout.general, in_registers, model, back);
    };
    const Steps alpha = steps(layouts.forward, false), beta = steps(layouts.backward, true);
    Numbers sums(at(combine.dense + combine.sparse.rounds()));
    for (int t = 0; t < model.T; ++t) {
      const Numbers m = alpha_at_places(constraint.topology(), layouts.forward, combine, alpha.v[at(t)]);
      const double* w = model.h.data() + at(t) * at(model.K);
      const Numbers weight = label_weights(combine.arrivals, m, beta.v[at(t)], w);
      std::vector<Numbers> others;
      if (combine.copied)
        others.push_back(label_weights(combine.nodes, alpha.v[at(t)],
                                       beta_at_outs(constraint.topology(), layouts, combine, beta.v[at(t)]), w));
      if (t + 1 == model.T) others.push_back(last_weights(combine, model, alpha.v[at(t)]));
      if (t + 1 < model.T) {
        const Numbers y = beta_at_outs(constraint.topology(), layouts, combine, beta.v[at(t + 1)]),
                      here = bigrams_at(combine, m, y);
        for (std::size_t e = 0; e < sums.size(); ++e) sums[e] += here[e];
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
      for (std::int32_t e = combine.pair.begin[ab]; e < combine.pair.begin[ab + 1]; ++e)
        sum += sums[at(combine.pair.order[at(e)])];
      EXPECT_NEAR(sum * model.g[ab] / std::exp(z), bigrams[ab], 1e-8);
    }
  }
}

// A in registers layout's gains are its groups' entries, each where the thread that multiplies with it looks and where
// the path is followed back from its cell, and nothing else.
void expect_gains(const StepLayout& layout) {
  if (layout.kind < 0) return;
  const RegisterTile kind = kRegisterTiles[layout.kind];
  std::vector<bool> filled(layout.gain_entry.size());
  for (const DenseGroup& group : layout.groups) {
    const std::int32_t lanes = group.stride / kind.slots, row = gain_row(group.tiles, lanes);
    for (std::int32_t i = 0; i < group.slots; ++i) {
      for (std::int32_t o = 0; o < group.width; ++o) {
        const std::int32_t four = o % kTile / 4 * (row - 4) / 2, thread = (o / kTile * lanes + i / kind.slots) * 4,
                           place = group.first_gain + i % kind.slots * row + four + thread + o % 4;
        EXPECT_EQ(layout.gain_entry[at(place)], layout.entry[at(group.first_entry + i * group.width + o)]);
        EXPECT_FALSE(filled[at(place)]);
        filled[at(place)] = true;
        const std::int32_t out = group.first_out + o;  // of the group's first state
        if (layout.label[at(out)] == layout.K) continue;
        const RowOf from = layout.row_of[at(layout.stored[at(out)])];
        EXPECT_EQ(from.entry + i % kind.slots * row + i / kind.slots * 4, place);
        EXPECT_EQ(from.row, group.first_cell);
        EXPECT_EQ(from.label, layout.label[at(out)]);
        EXPECT_EQ(from.begins, layout.begins[at(out)]);
      }
    }
  }
  for (std::size_t i = 0; i < filled.size(); ++i) EXPECT_TRUE(filled[i] || layout.gain_entry[i] == -1);
}

TEST(StepLayout, RandomLanguages) {
  bool in_registers = false, fan_ins = false, two = false, groups = false, copied = false, warp_tiles = false,
       quads = false;
  for (int i = 0; i < 150; ++i) {
    oracle::Random random(static_cast<std::uint64_t>(i) + 900);
    const int labels = random.between(1, 14);
    const Automaton automaton =
        oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, random.between(1, 14));
    const Constraint constraint = Constraint::from_automaton(automaton, numbered_labels(labels));
    SCOPED_TRACE("language " + std::to_string(i));
    expect_like_inference(constraint,
                          oracle::random_scores(random, oracle::ScoreKind::normal, random.between(1, 7), labels, true));
    const StepLayouts layouts = make_step_layouts(constraint.topology(), 32);
    EXPECT_EQ(layouts.forward.kind, layouts.backward.kind);
    const CombineLayout combine = make_combine_layout(constraint.topology(), layouts.forward, layouts.backward);
    copied = copied || combine.copied;
    warp_tiles = warp_tiles || !combine.warp_tiles.empty();
    quads = quads || !combine.quad.empty();
    for (const StepLayout& layout : {layouts.forward, layouts.backward}) {
      expect_gains(layout);
      in_registers = in_registers || layout.kind >= 0;
      fan_ins = fan_ins || layout.fan_ins > 0;
      two = two || layout.two;
      groups = groups || !layout.groups.empty();
    }
    if (HasFailure()) return;
  }
  EXPECT_TRUE(in_registers && fan_ins && two && groups && copied && warp_tiles && quads);
}

// How often the lanes of a warp have to wait for each other in a bank, where out i of the sparse ones is lane i % 32.
std::size_t bank_accesses(const StepLayout& layout, const std::function<std::int32_t(std::int32_t)>& address) {
  std::size_t accesses = 0;
  for (std::int32_t first = 0; first < layout.sparse; first += 32) {
    std::vector<std::set<std::int32_t>> in_bank(32);
    for (std::int32_t i = first; i < std::min(first + 32, layout.sparse); ++i)
      in_bank[at(address(i) % 32)].insert(address(i));
    std::size_t most = 0;
    for (const auto& addresses : in_bank) most = std::max(most, addresses.size());
    accesses += most;
  }
  return accesses;
}

TEST(StepLayout, SparseOutsOfAWarpLieInDifferentBanks) {
  const Constraint srl =
      Constraint::from_automaton(oracle::algorithm1(oracle::paper_roles()), oracle::role_labels(oracle::paper_roles()));
  const StepLayouts layouts = make_step_layouts(srl.topology(), 32);
  for (const StepLayout& layout : {layouts.forward, layouts.backward}) {
    const std::size_t warps = at(ceil_div(layout.sparse, 32));
    const auto stored = [&](std::int32_t i) { return layout.stored[at(layout.first_sparse + i)]; };
    const auto label = [&](std::int32_t i) { return layout.label[at(layout.first_sparse + i)]; };
    const auto source = [&](std::int32_t i) { return layout.sparse_source[at(i)].x; };
    EXPECT_LT(bank_accesses(layout, stored), 3 * warps);  // 6 a warp in the order of states, backwards
    EXPECT_LT(bank_accesses(layout, label), 3 * warps);
    EXPECT_LT(bank_accesses(layout, source), 3 * warps);
  }
}

TEST(StepLayout, TheSrlLanguageFitsIntoRegisters) {
  const Constraint srl =
      Constraint::from_automaton(oracle::algorithm1(oracle::paper_roles()), oracle::role_labels(oracle::paper_roles()));
  const StepLayouts layouts = make_step_layouts(srl.topology(), 32);
  EXPECT_EQ(layouts.forward.kind, 1);
  const CombineLayout combine = make_combine_layout(srl.topology(), layouts.forward, layouts.backward);
  EXPECT_TRUE(combine.copied && !combine.quad.empty());
  EXPECT_EQ(combine.places, layouts.forward.cells);
  for (const StepLayout& layout : {layouts.forward, layouts.backward}) {
    for (const std::int32_t out : layout.out)
      EXPECT_EQ(layout.slots_of[at(layout.stored[at(out)])].label, layout.label[at(out)]);
    expect_gains(layout);
  }
  oracle::Random random(3);
  expect_like_inference(srl, oracle::random_scores(random, oracle::ScoreKind::normal, 6, 47, true));
}

}  // namespace
}  // namespace regccrf
