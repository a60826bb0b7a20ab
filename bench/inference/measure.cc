// Times one task of ours on given scores and prints the answer and the time as JSON; run.py compares it with the
// others.
//   measure FOLDER TASK THREADS
//   measure --peak
// FOLDER holds constraint, emissions.f32 [B, T, K], transitions.f32 [K, K] and gold.i32 [B, T].
// Tasks: nll (loss and gradients), log_z, viterbi; nll-dense, log_z-dense, viterbi-dense run the paper's dense
// construction.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/inference/dense.h"
#include "bench/inference/peak.h"
#include "regccrf/constraint.h"
#include "regccrf/inference.h"
#include "regccrf/loss.h"

namespace {

using namespace regccrf;
using Json = nlohmann::ordered_json;

template <class T>
std::vector<T> read_array(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

struct Data {
  Constraint constraint;
  int B, T, K;
  std::vector<float> emissions, transitions;
  std::vector<Label> gold;

  explicit Data(const std::string& folder) : constraint(Constraint::load(folder + "/constraint")) {
    const auto shape = read_array<std::int32_t>(folder + "/shape.i32");
    B = shape[0], T = shape[1], K = shape[2];
    emissions = read_array<float>(folder + "/emissions.f32");
    transitions = read_array<float>(folder + "/transitions.f32");
    gold = read_array<Label>(folder + "/gold.i32");
  }
  Scores<float> scores() const { return {emissions, transitions, Layout::padded(B, T)}; }
};

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs until half a second and five runs are over (a slow task: once), and keeps every time. `least_cpu`: the least CPU
// time of a run, of all threads together.
std::vector<double> time_runs(const std::function<void()>& run, double& least_cpu) {
  std::vector<double> seconds;
  least_cpu = 1e300;
  double total = 0;
  while (seconds.empty() || (total < 0.5 || seconds.size() < 5)) {
    const double before = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    run();
    least_cpu = std::min(least_cpu, cpu_seconds() - before);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    total += seconds.back();
    if (total > 5) break;
  }
  return seconds;
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (double value : values) total += value;
  return total;
}

Json measure(const std::string& folder, const std::string& task, int threads) {
  const Data data(folder);
  Workspace workspace;
  LossOptions options;
  options.threads = threads;
  options.workspace = &workspace;
  std::vector<float> d_emissions(data.emissions.size()), d_transitions(data.transitions.size());
  double answer = 0;
  const bench::Dense dense(data.constraint, data.transitions, data.B, data.T, data.K);
  const std::map<std::string, std::function<void()>> tasks = {
      {"nll",
       [&] {
         answer = nll(data.constraint, data.scores(), data.gold, {d_emissions, d_transitions, {}, {}}, options).total();
       }},
      {"log_z", [&] { answer = sum(log_z(data.constraint, data.scores(), options)); }},
      {"viterbi",
       [&] {
         answer = 0;
         for (const Path& path : viterbi(data.constraint, data.scores(), options)) answer += path.score;
       }},
      {"nll-dense", [&] { answer = dense.nll(data.emissions, data.gold, d_emissions, d_transitions); }},
      {"log_z-dense", [&] { answer = dense.log_z(data.emissions); }},
      {"viterbi-dense", [&] { answer = dense.viterbi(data.emissions); }},
  };
  double least_cpu;
  std::vector<double> seconds = time_runs(tasks.at(task), least_cpu);
  std::sort(seconds.begin(), seconds.end());
  const Statistics statistics = workspace.statistics();
  double gradient_norm = 0;
  for (float g : d_emissions) gradient_norm += static_cast<double>(g) * g;
  for (float g : d_transitions) gradient_norm += static_cast<double>(g) * g;
  return {{"answer", answer},
          {"gradient", gradient_norm},
          {"seconds", seconds[seconds.size() / 2]},
          {"best", seconds[0]},
          {"cpu", least_cpu},
          {"runs", seconds.size()},
          {"passes", statistics.sequences},
          {"doubled", statistics.doubled},
          {"wide", statistics.wide}};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool peak = argc == 2 && std::string(argv[1]) == "--peak";
    if (!peak && argc != 4) throw Error("usage: measure FOLDER TASK THREADS, or measure --peak");
    const Json result = peak ? Json{{"products_per_second", bench::peak_products_per_second()}}
                             : measure(argv[1], argv[2], std::atoi(argv[3]));
    std::cout << result.dump() << "\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "measure: error: " << error.what() << "\n";
    return 2;
  }
}
