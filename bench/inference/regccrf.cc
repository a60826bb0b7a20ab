// Times of inference on the CPU beside a plain dense forward–backward over the same automaton, in one run. A row is
// timed only after its answers agree with the plain ones.
//
//   bench_inference [seconds per row] [rows whose name contains this]
//
// Columns: ms with 1 thread, ms with 2, the plain pass, and for NLL with gradient the distance of 1 thread from the
// arithmetic limit: three times the products of all steps at the machine's measured rate of multiply-adds.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/inference/peak.h"
#include "regccrf/constraint.h"
#include "regccrf/inference.h"
#include "regccrf/language.h"
#include "regccrf/loss.h"

namespace {

using namespace regccrf;

double seconds_per_row = 0.5;

// Best of many runs, in ms.
double time_of(const std::function<void()>& job) {
  using clock = std::chrono::steady_clock;
  double best = 1e300;
  const auto start = clock::now();
  for (int i = 0; i < 5 || std::chrono::duration<double>(clock::now() - start).count() < seconds_per_row; ++i) {
    const auto t0 = clock::now();
    job();
    best = std::min(best, std::chrono::duration<double, std::milli>(clock::now() - t0).count());
    if (i >= 2 && best > 2000) break;
  }
  return best;
}

struct Problem {
  std::string name;
  Constraint constraint;
  std::int64_t B, T;
  std::vector<float> h, g, start, end;
  std::vector<Label> gold;

  Problem(std::string n, Constraint c, std::int64_t b, std::int64_t t, float spread)
      : name(std::move(n)), constraint(std::move(c)), B(b), T(t) {
    const int K = constraint.labels().size();
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, spread);
    const auto fill = [&](std::vector<float>& v, std::size_t size) {
      v.resize(size);
      for (float& x : v) x = normal(random);
    };
    fill(h, static_cast<std::size_t>(B * T * K));
    fill(g, static_cast<std::size_t>(K) * K);
    fill(start, static_cast<std::size_t>(K));
    fill(end, static_cast<std::size_t>(K));
    for (const auto& paths : sample(constraint, view()))
      gold.insert(gold.end(), paths[0].labels.begin(), paths[0].labels.end());
  }
  Scores<float> view() const { return Scores(h, g, Layout::padded(B, T)).with_start_end(start, end); }
};

// A plain pass over arcs in double: log_z by sums, or the best score by maxima.
double plain(const Problem& p, std::int64_t sequence, bool best) {
  const Automaton& automaton = p.constraint.automaton();
  const int K = p.constraint.labels().size();
  const std::size_t A = automaton.arcs.size();
  std::vector<double> alpha(A, -INFINITY), next(A);
  std::vector<std::vector<std::size_t>> into(static_cast<std::size_t>(automaton.states()));
  for (std::size_t i = 0; i < A; ++i) into[automaton.arcs[i].to].push_back(i);
  const auto sum = [best](double x, double y) {
    if (x < y) std::swap(x, y);
    return y == -INFINITY || best ? x : x + std::log1p(std::exp(y - x));
  };
  const float* h = p.h.data() + sequence * p.T * K;
  for (std::size_t i = 0; i < A; ++i) {
    const Arc& arc = automaton.arcs[i];
    if (arc.from == automaton.start) alpha[i] = p.start[arc.label] + h[arc.label];
  }
  for (std::int64_t t = 1; t < p.T; ++t) {
    for (std::size_t i = 0; i < A; ++i) {
      const Arc& arc = automaton.arcs[i];
      double x = -INFINITY;
      for (std::size_t j : into[arc.from]) x = sum(x, alpha[j] + p.g[automaton.arcs[j].label * K + arc.label]);
      next[i] = x + h[t * K + arc.label];
    }
    alpha.swap(next);
  }
  double z = -INFINITY;
  for (std::size_t i = 0; i < A; ++i) {
    const Arc& arc = automaton.arcs[i];
    if (automaton.accepting[arc.to]) z = sum(z, alpha[i] + p.end[arc.label]);
  }
  return z;
}

bool agree(const char* what, double x, double y) {
  if (std::abs(x - y) <= 1e-5 * std::max(1.0, std::abs(y))) return true;
  std::printf("%s: %.9g, and the plain pass says %.9g\n", what, x, y);
  return false;
}

bool measure(const Problem& p, double peak) {
  const Scores<float> scores = p.view();
  Workspace workspace;
  const int K = scores.labels;
  std::vector<float> dh(p.h.size()), dg(p.g.size()), ds(K), de(K);
  const Gradients<float> gradients{dh, dg, ds, de, {}};
  const auto options = [&](int threads) {
    LossOptions o;
    o.threads = threads;
    o.workspace = &workspace;
    return o;
  };
  if (!agree("log_z", log_z(p.constraint, scores)[0], plain(p, 0, false))) return false;
  if (!agree("viterbi", viterbi(p.constraint, scores)[0].score, plain(p, 0, true))) return false;
  const double limit = 3e3 * static_cast<double>(p.constraint.size().products * p.B * p.T) / peak;
  const double nll1 = time_of([&] { nll(p.constraint, scores, p.gold, gradients, options(1)); });
  const double nll2 = time_of([&] { nll(p.constraint, scores, p.gold, gradients, options(2)); });
  const double z1 = time_of([&] { log_z(p.constraint, scores, options(1)); });
  const double z2 = time_of([&] { log_z(p.constraint, scores, options(2)); });
  const double v1 = time_of([&] { viterbi(p.constraint, scores, options(1)); });
  const double v2 = time_of([&] { viterbi(p.constraint, scores, options(2)); });
  const double dense = time_of([&] { plain(p, 0, false); }) * static_cast<double>(p.B);
  const Statistics s = workspace.statistics();
  std::printf("%-22s | %9.3f %9.3f %5.2fx | %9.3f %9.3f | %9.3f %9.3f | %11.1f | doubled %.1f%%, wide %.1f%%\n",
              p.name.c_str(), nll1, nll2, nll1 / limit, z1, z2, v1, v2, dense,
              100.0 * static_cast<double>(s.doubled) / static_cast<double>(s.sequences),
              100.0 * static_cast<double>(s.wide) / static_cast<double>(s.sequences));
  std::fflush(stdout);
  return true;
}

Labels numbered(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("L" + std::to_string(i));
  return Labels(std::move(names));
}

Constraint srl() { return compile(Language::load(REGCCRF_SOURCE_DIR "/languages/srl.lang")); }

// O | B-X I-X*, over and over, with `types` types of spans.
Constraint bio(int types) {
  Automaton automaton;
  automaton.accepting.assign(static_cast<std::size_t>(types) + 1, 1);
  for (int q = 0; q <= types; ++q) {
    automaton.arcs.push_back({q, 0, 0});
    for (int x = 1; x <= types; ++x) automaton.arcs.push_back({q, 2 * x - 1, x});
    if (q > 0) automaton.arcs.push_back({q, 2 * q, q});
  }
  return Constraint::from_automaton(std::move(automaton), numbered(2 * types + 1));
}

// Shaped like a gene: intergenic, then exons in three phases with introns of fixed beginnings between them.
Constraint gene() {
  Automaton automaton;  // labels: 0 intergenic, 1 … 3 codon positions, 4 intron
  automaton.accepting = {1, 0, 0, 1, 0, 0, 0};
  automaton.arcs = {{0, 0, 0}, {0, 1, 1}, {1, 2, 2}, {2, 3, 3}, {3, 1, 1}, {3, 0, 0}, {1, 4, 4}, {4, 4, 4},
                    {4, 2, 2}, {2, 4, 5}, {5, 4, 5}, {5, 3, 3}, {3, 4, 6}, {6, 4, 6}, {6, 1, 1}};
  return Constraint::from_automaton(std::move(automaton), numbered(5));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) seconds_per_row = std::atof(argv[1]);
  const std::string only = argc > 2 ? argv[2] : "";
  const double peak = bench::peak_products_per_second();
  std::printf("multiply-adds in float: %.1f G/s\n", peak / 1e9);
  std::printf("%-22s | %9s %9s %6s | %9s %9s | %9s %9s | %11s\n", "ms", "nll+grad", "2 threads", "limit", "log_z",
              "2 threads", "viterbi", "2 threads", "plain log_z");
  bool good = true;
  // `spread`: the scores' standard deviation.
  const auto row = [&](const std::string& name, const Constraint& constraint, std::int64_t B, std::int64_t T,
                       int spread = 1) {
    std::string full = name + " " + std::to_string(B) + "x" + std::to_string(T);
    if (spread > 1) full += ", spread " + std::to_string(spread);
    if (full.find(only) == std::string::npos) return;
    good = measure(Problem(full, constraint, B, T, static_cast<float>(spread)), peak) && good;
  };
  row("srl", srl(), 2, 32);
  row("srl", srl(), 8, 64);
  row("srl", srl(), 64, 64);
  row("srl", srl(), 1, 1000);
  for (const int spread : {5, 10, 20}) row("srl", srl(), 8, 64, spread);
  for (const int spread : {5, 20}) row("srl", srl(), 1, 1000, spread);
  row("unconstrained 47", Constraint::unconstrained(numbered(47)), 8, 64);
  row("bio 9", bio(4), 8, 64);
  for (const int spread : {5, 10, 20}) row("bio 9", bio(4), 8, 64, spread);
  row("gene", gene(), 1, 10000);
  return good ? 0 : 1;
}
