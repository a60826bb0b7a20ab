// The paper's Appendix C. A state of the transducer is a node (q, a): in state q, with the next label already announced
// by the bigram before. Reading (a, b) goes from node (q, a) to every node (r, b) that an arc (q, a, r) leads to;
// reading (a, $) ends. For one input the transducer is unrolled: its states are (position, node).
#include "regccrf/bigram_fst.h"

#include <functional>

#include "base/file.h"
#include "constraint/topology.h"
#include "language/fst_file.h"
#include "regccrf/error.h"

namespace regccrf {
namespace {

// Calls step(node, next, a, b) for every pair of nodes that may follow each other.
void for_each_step(const Topology& t, const std::function<void(std::int32_t, std::int32_t, Label, Label)>& step) {
  for (std::int32_t node = 0; node < t.nodes; ++node) {
    for (std::int32_t i = t.from_begin[node]; i < t.from_begin[node + 1]; ++i) {
      const std::int32_t r = t.arrival_state[t.from_arrival[i]];
      for (std::int32_t next = t.node_begin[r]; next < t.node_begin[r + 1]; ++next)
        step(node, next, t.node_label[node], t.node_label[next]);
    }
  }
}

// Bigram (a, b) is symbol a (K + 1) + b + 1; $ counts as label K.
std::int32_t bigram(Label a, Label b, int K) { return a * (K + 1) + b + 1; }

std::vector<std::string> bigram_names(const Labels& labels) {
  std::vector<std::string> names;
  for (const std::string& a : labels.names()) {
    for (const std::string& b : labels.names()) names.push_back(a + "|" + b);
    names.push_back(a + "|$");
  }
  return names;
}

template <class Real>
void check_one_sequence(const Scores<Real>& scores, int K) {
  const bool shapes = scores.labels == K && scores.transitions.size() == std::size_t(K) * K &&
                      scores.emissions.size() % K == 0 &&
                      (scores.start.empty() || scores.start.size() == std::size_t(K)) &&
                      (scores.end.empty() || scores.end.size() == std::size_t(K));
  if (!shapes) throw Error("[bigram_fst] the scores do not have the constraint's " + std::to_string(K) + " labels");
  const Layout& layout = scores.layout;
  const std::int64_t rows = std::ssize(scores.emissions) / K;
  if (layout.size() != 1 || layout.length(0, rows) != rows || !layout.mask().empty()) {
    throw Error("[bigram_fst] a transducer is made for one sequence without a mask; give its rows alone");
  }
}

}  // namespace

void write_bigram_fst(const Constraint& constraint, const std::string& path) {
  const Topology& t = constraint.topology();
  WeightedFst fst;
  fst.states = t.nodes + 2;  // the nodes, the start, the end
  const std::int32_t start = t.nodes, end = t.nodes + 1;
  fst.start = start;
  fst.input_names = {"x"};
  fst.output_names = bigram_names(constraint.labels());
  fst.final.push_back({end, 0});
  if (t.accepting[t.start]) fst.final.push_back({start, 0});
  const auto add = [&](std::int32_t from, std::int32_t to, Label a, Label b) {
    fst.arcs.push_back({from, to, 1, bigram(a, b, t.K), 0});
  };
  const auto starts = [&](std::int32_t node) { return t.node_state[node] == t.start; };
  for_each_step(t, [&](std::int32_t node, std::int32_t next, Label a, Label b) {
    add(node, next, a, b);
    if (starts(node)) add(start, next, a, b);
  });
  for (std::int32_t node = 0; node < t.nodes; ++node) {
    if (!t.node_accepts[node]) continue;
    add(node, end, t.node_label[node], t.K);
    if (starts(node)) add(start, end, t.node_label[node], t.K);
  }
  write_file(path, encode_weighted_fst(fst, 0));
}

template <class Real>
void write_scored_fst(const Constraint& constraint, const Scores<Real>& scores, Semiring semiring,
                      const std::string& path) {
  const Topology& t = constraint.topology();
  check_one_sequence(scores, t.K);
  const std::int64_t T = static_cast<std::int64_t>(scores.emissions.size()) / t.K;
  if (T * t.nodes > 100'000'000)
    throw LimitError("[bigram_fst] length × nodes is over 100,000,000: the file would not fit into memory");
  WeightedFst fst;
  const std::int32_t end = static_cast<std::int32_t>(std::max<std::int64_t>(T - 1, 0) * t.nodes) + 1;
  fst.start = 0;
  fst.states = end + 1;
  const auto state = [&](std::int64_t position, std::int32_t node) {
    return static_cast<std::int32_t>(1 + (position - 1) * t.nodes + node);
  };
  for (std::int64_t i = 1; i <= T; ++i) fst.input_names.push_back("x" + std::to_string(i));
  fst.output_names = bigram_names(constraint.labels());
  fst.final.push_back({end, 0});
  if (T == 0 && t.accepting[t.start]) fst.final.push_back({0, 0});

  // The weight of leaving position i (from 0) with label a, before the transition is added.
  const auto leave = [&](std::int64_t i, Label a) {
    return static_cast<double>(scores.emissions[i * t.K + a]) +
           (i == 0 && !scores.start.empty() ? scores.start[a] : Real(0));
  };
  for (std::int64_t i = 0; i < T; ++i) {
    const auto source = [&](std::int32_t node) {
      return i == 0 ? (t.node_state[node] == t.start ? 0 : -1) : state(i, node);
    };
    const std::int32_t input = static_cast<std::int32_t>(i + 1);
    if (i + 1 < T) {
      for_each_step(t, [&](std::int32_t node, std::int32_t next, Label a, Label b) {
        if (source(node) < 0) return;
        const double score = leave(i, a) + static_cast<double>(scores.transitions[std::size_t(a) * t.K + b]);
        fst.arcs.push_back({source(node), state(i + 1, next), input, bigram(a, b, t.K), -score});
      });
      continue;
    }
    for (std::int32_t node = 0; node < t.nodes; ++node) {
      if (!t.node_accepts[node] || source(node) < 0) continue;
      const Label a = t.node_label[node];
      const double score = leave(i, a) + (scores.end.empty() ? 0.0 : static_cast<double>(scores.end[a]));
      fst.arcs.push_back({source(node), end, input, bigram(a, t.K, t.K), -score});
    }
  }
  write_file(path, encode_weighted_fst(fst, static_cast<int>(semiring)));
}

template void write_scored_fst(const Constraint&, const Scores<float>&, Semiring, const std::string&);
template void write_scored_fst(const Constraint&, const Scores<double>&, Semiring, const std::string&);

}  // namespace regccrf
