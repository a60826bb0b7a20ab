// Device time of loss with gradients and of Viterbi, by replaying a captured graph: median over repeats, in
// microseconds, and how many times the floor that is.
//   bench_cuda languages/srl.lang languages/bio.lang 47 [8x64 …]     (a number: that many labels, no constraint)
//
// The floor is what one processor for each sequence and direction needs, as many at a time as there are: for every
// step that waits for the one before, kLatency cycles, and the language's products, without any padding, at the rate of
// its units. A loss walks T steps each way at the same time, then multiplies again, all processors together, what
// memory brings it; Viterbi walks T / 2. Cut into pieces, a long sequence can take less.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>

#include "bench/cuda/runner.h"
#include "constraint/topology.h"
#include "regccrf/inference.h"
#include "regccrf/language.h"

namespace regccrf {
namespace {

constexpr int kRepeats = 21, kInside = 5;

Constraint constraint_of(const std::string& name) {
  if (name.find_first_not_of("0123456789") != std::string::npos) return compile(Language::load(name));
  std::vector<std::string> labels;
  for (int i = 0; i < std::stoi(name); ++i) labels.push_back("L" + std::to_string(i));
  return Constraint::unconstrained(Labels(labels));
}

template <class Enqueue>
double median_us(const Enqueue& enqueue) {
  cudaStream_t stream;
  must(cudaStreamCreate(&stream));
  enqueue(stream);
  must(cudaStreamSynchronize(stream));
  cudaGraph_t graph;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < kInside; ++i) enqueue(stream);
  must(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t replay;
  must(cudaGraphInstantiate(&replay, graph, 0));
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin));
  must(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < kRepeats; ++i) {
    must(cudaEventRecord(begin, stream));
    must(cudaGraphLaunch(replay, stream));
    must(cudaEventRecord(end, stream));
    must(cudaEventSynchronize(end));
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(1000.0 * static_cast<double>(ms) / kInside);
  }
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  must(cudaGraphExecDestroy(replay));
  must(cudaGraphDestroy(graph));
  must(cudaStreamDestroy(stream));
  return times[kRepeats / 2];
}

// Cycles of a step but for its products: cells come from shared memory (30), twelve products one behind the other (50),
// two shuffles (50), a scale, a store, and the block meets (70).
constexpr double kLatency = 200;
constexpr double kMultiplications = 128, kMaxima = 64;  // a cycle and processor

struct Floor {
  double loss, viterbi;  // us
};
Floor floor_of(const Constraint& constraint, int B, int T) {
  const auto attribute = [](cudaDeviceAttr which) {
    int value = 0;
    must(cudaDeviceGetAttribute(&value, which, 0));
    return static_cast<double>(value);
  };
  const double processors = attribute(cudaDevAttrMultiProcessorCount), cycles = attribute(cudaDevAttrClockRate) * 1e-3,
               bytes =
                   attribute(cudaDevAttrMemoryClockRate) * 1e-3 * 2 * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8,
               turns = std::ceil(2 * B / processors), positions = static_cast<double>(B) * T,
               products = static_cast<double>(constraint.topology().products);
  const double walk = turns * T * (kLatency + products / kMultiplications) / cycles,
               multiply = positions * products / kMultiplications / processors / cycles,
               bring = positions * 2 * constraint.topology().nodes * (T <= 256 ? 4 : 8) / bytes;
  return {walk + std::max(multiply, bring), turns * T / 2 * (kLatency + products / kMaxima) / cycles};
}

void measure(const std::string& name, const Constraint& constraint, int B, int T) {
  const int K = constraint.labels().size();
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> h(static_cast<std::size_t>(B) * static_cast<std::size_t>(T) * static_cast<std::size_t>(K));
  std::vector<float> g(static_cast<std::size_t>(K) * static_cast<std::size_t>(K));
  for (float& x : h) x = 2 * normal(random);
  for (float& x : g) x = normal(random);
  const cuda::DeviceConstraint there(constraint);
  const DeviceBatch<float> batch(B, T, K, std::span<const float>(h), std::span<const float>(g));
  const OnDevice<double> value(batch.size()), score(batch.size());
  const OnDevice<float> dh(h.size()), dg(batch.size() * g.size());
  const OnDevice<cuda::Status> status(batch.size());
  const OnDevice<std::int32_t> labels(batch.rows());

  // Gold: the best sequence.
  const std::size_t viterbi_bytes = cuda::viterbi_bytes(there, batch.view());
  const OnDevice<char> viterbi_memory(viterbi_bytes);
  const cuda::Best best{labels.get(), score.get(), status.get()};
  cuda::viterbi(there, batch.view(), best, {viterbi_memory.get(), viterbi_bytes}, nullptr);
  must(cudaDeviceSynchronize());
  const std::vector<std::int32_t> found = labels.host();
  const std::vector<std::int64_t> gold(found.begin(), found.end());
  const OnDevice<std::int64_t> gold_there{std::span<const std::int64_t>(gold)};
  const cuda::Expectation wanted{value.get(), dh.array(), dg.array(), status.get(), gold_there.get()};
  const std::size_t bytes = cuda::expectation_bytes(there, batch.view(), wanted);
  const OnDevice<char> memory(bytes);
  const double loss_us = median_us([&](cudaStream_t s) {
    cuda::expectation(there, batch.view(), wanted, {memory.get(), bytes}, s);
  });
  const double best_us = median_us([&](cudaStream_t s) {
    cuda::viterbi(there, batch.view(), best, {viterbi_memory.get(), viterbi_bytes}, s);
  });

  // The answer is checked against the CPU's.
  const Scores scores(std::span<const float>(h).first(static_cast<std::size_t>(T) * static_cast<std::size_t>(K)), g);
  const double z = log_z(constraint, scores).at(0), nll = z - viterbi_score(constraint, scores).at(0);
  const double difference = std::abs(value.host()[0] - nll) / std::max(1.0, std::abs(z));
  const Floor floor = floor_of(constraint, B, T);
  std::printf("%-24s %4d x %-6d %10.1f %8.3f %7.2f %10.1f %8.3f %7.2f  %7.1f MB  %.0e\n", name.c_str(), B, T, loss_us,
              loss_us / T, loss_us / floor.loss, best_us, best_us / T, best_us / floor.viterbi,
              static_cast<double>(bytes) / 1e6, difference);
  std::fflush(stdout);
  if (!(difference < 1e-5)) std::exit(1);
}

}  // namespace
}  // namespace regccrf

int main(int argc, char** argv) {
  using namespace regccrf;
  if (!cuda::available()) {
    std::fprintf(stderr, "bench_cuda: no CUDA device here\n");
    return 1;
  }
  std::printf("%-24s %13s %10s %8s %7s %10s %8s %7s  %10s  %s\n", "language", "B x T", "loss us", "us/step", "x floor",
              "viterbi us", "us/step", "x floor", "workspace", "difference");
  std::vector<std::pair<int, int>> sizes;
  std::vector<std::string> languages;
  for (int i = 1; i < argc; ++i) {
    int B = 0, T = 0;
    if (std::sscanf(argv[i], "%dx%d", &B, &T) == 2) {
      sizes.emplace_back(B, T);
    } else {
      languages.emplace_back(argv[i]);
    }
  }
  if (sizes.empty()) sizes = {{2, 32}, {8, 64}, {8, 128}, {64, 64}, {256, 128}, {1, 10000}};
  for (const std::string& name : languages) {
    const Constraint constraint = constraint_of(name);
    for (const auto& [B, T] : sizes) measure(name, constraint, B, T);
  }
}
