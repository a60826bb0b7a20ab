// What a small language costs beside none: CPU time of losses with gradients and of decoding under a constraint,
// divided by that of an unconstrained CRF with the same labels. The two take turns within one thread, and the least of
// many rounds counts, so that a busy machine does not matter much.
//
//   bench_small [rounds] [rows whose name contains this]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/inference.h"
#include "regccrf/language.h"
#include "regccrf/loss.h"

namespace {

using namespace regccrf;

int rounds = 200;

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Random scores of B sequences of T positions, and legal gold.
template <class Real>
struct Problem {
  Constraint constraint;
  std::vector<Real> h, g, start, end, dh, dg, ds, de;
  std::int64_t B, T;
  std::vector<Label> gold;
  Workspace workspace;

  Problem(const Constraint& c, std::int64_t b, std::int64_t t) : constraint(c), B(b), T(t) {
    const auto K = static_cast<std::size_t>(c.labels().size());
    std::mt19937 random(7);
    std::normal_distribution<Real> normal(0, 1);
    const auto fill = [&](std::vector<Real>& v, std::size_t size) {
      v.resize(size);
      for (Real& x : v) x = normal(random);
    };
    fill(h, static_cast<std::size_t>(B * T) * K);
    fill(g, K * K);
    fill(start, K);
    fill(end, K);
    dh = h, dg = g, ds = start, de = end;
    for (const auto& paths : sample(constraint, view()))
      gold.insert(gold.end(), paths[0].labels.begin(), paths[0].labels.end());
  }
  Scores<Real> view() const { return Scores(h, g, Layout::padded(B, T)).with_start_end(start, end); }
  LossOptions options() {
    LossOptions o;
    o.threads = 1;
    o.workspace = &workspace;
    return o;
  }
  void loss() { nll(constraint, view(), gold, Gradients<Real>{dh, dg, ds, de, {}}, options()); }
  void sum() { log_z(constraint, view(), options()); }
  void decode() { viterbi(constraint, view(), options()); }
};

// Least CPU time of each, in µs.
std::pair<double, double> in_turns(const std::function<void()>& one, const std::function<void()>& other) {
  double least[2] = {1e300, 1e300};
  for (int i = 0; i < rounds; ++i) {
    for (const int which : {0, 1}) {
      const double before = cpu_seconds();
      (which == 0 ? one : other)();
      least[which] = std::min(least[which], 1e6 * (cpu_seconds() - before));
    }
  }
  return {least[0], least[1]};
}

template <class Real>
void measure(const Constraint& constraint, std::int64_t B, std::int64_t T) {
  Problem<Real> under(constraint, B, T), free(Constraint::unconstrained(constraint.labels()), B, T);
  const auto print = [](std::pair<double, double> times) {
    std::printf(" | %9.1f %9.1f %5.2f", times.first, times.second, times.first / times.second);
    std::fflush(stdout);
  };
  print(in_turns([&] { under.loss(); }, [&] { free.loss(); }));
  print(in_turns([&] { under.sum(); }, [&] { free.sum(); }));
  print(in_turns([&] { under.decode(); }, [&] { free.decode(); }));
}

std::string types(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += " T" + std::to_string(i);
  return "{" + text + "}";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) rounds = std::atoi(argv[1]);
  const std::string only = argc > 2 ? argv[2] : "";
  std::printf("µs of CPU with a constraint, without, and their ratio; 1 thread\n");
  std::printf("%-26s %3s %6s | %-25s | %-25s | %-25s\n", "", "K", "nodes", "nll with gradients", "log_z", "viterbi");
  const auto row = [&](const std::string& name, const Language& language, std::int64_t B, std::int64_t T) {
    const Constraint constraint = compile(language);
    for (const bool in_float : {true, false}) {
      const std::string full =
          name + " " + std::to_string(B) + "x" + std::to_string(T) + (in_float ? " float" : " double");
      if (full.find(only) == std::string::npos) continue;
      std::printf("%-26s %3d %6lld", full.c_str(), constraint.labels().size(),
                  static_cast<long long>(constraint.size().nodes));
      in_float ? measure<float>(constraint, B, T) : measure<double>(constraint, B, T);
      std::printf("\n");
    }
  };
  const auto bio = [](int count) { return Language::parse("bio(" + types(count) + ")"); };
  for (const int count : {4, 11, 23}) row("bio-" + std::to_string(2 * count + 1), bio(count), 32, 24);
  row("bioes-21", Language::parse("bioes(" + types(5) + ")"), 32, 24);
  row("bio-9, one T0", Language::parse("bio(" + types(4) + ") & at_most(1, B-T0)"), 32, 24);
  row("bio-23", bio(11), 1, 1000);
  row("gene", Language::load(REGCCRF_SOURCE_DIR "/languages/gene.lang"), 1, 10000);
  row("membrane", Language::load(REGCCRF_SOURCE_DIR "/languages/membrane.lang"), 1, 1000);
}
