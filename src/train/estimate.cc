// Estimates (see estimate.h). Memory is counted in the arrays that grow with the task: per weight what the optimiser
// keeps, per item what the blocks keep, per thread what forward–backward needs of numbers for pairs of labels. The
// factors were read off the resident size of runs with 1,000 to 4,000 labels and 1 to 4 threads.
#include "train/estimate.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "train/objective.h"

namespace regccrf {
namespace {

constexpr double kNumber = sizeof(double);
constexpr double kLbfgsVectors = 19;      // weights, gradients, directions, and six pairs of earlier ones
constexpr double kAdagradVectors = 7;     // weights, squares, drift, gradient, means
constexpr double kPairsPerThread = 7;     // arrays of products a thread
constexpr double kHeapPerThread = 2.5e8;  // bytes that the allocator may keep for itself
constexpr double kPairsShared = 4;        // transitions and what is made of them
constexpr double kPair = 8;               // bytes of a (weight, cell) pair in a block

double bytes_of_items(const Dataset& data, const Columns& features) {
  const std::int64_t as_run = features.K / 8 + 2;  // labels of an attribute from which on a block keeps rows
  double bytes = 0;
  for (const std::int32_t i : data.attribute) {
    const std::int64_t labels = features.begin[i + 1] - features.begin[i];
    bytes += kPair * static_cast<double>(labels > as_run ? 1 : labels);
  }
  return bytes;
}

double seconds_of(Objective& objective, std::span<const double> w, std::span<double> gradient) {
  objective(w, gradient);  // once to touch all memory
  const auto begin = std::chrono::steady_clock::now();
  objective(w, gradient);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// As many sequences as make about this many products.
std::int64_t sample_size(const Dataset& data, double products) {
  constexpr double wanted = 1e8;
  std::int64_t many = 1;
  while (many < data.sequences() && static_cast<double>(data.position[many]) * products < wanted) ++many;
  return many;
}

}  // namespace

Estimate estimate_memory(const Training& training, const Features& features, const Constraint& constraint,
                         const TrainOptions& options) {
  const bool lbfgs = options.optimizer == Optimizer::lbfgs;
  const double K = features.K, pairs = std::max(K * K, static_cast<double>(constraint.size().products));
  const double threads = options.threads;
  Estimate estimate;
  estimate.weights_bytes = kNumber * (lbfgs ? kLbfgsVectors : kAdagradVectors) * static_cast<double>(features.size());
  if (lbfgs) estimate.weights_bytes += bytes_of_items(*training.data, features);
  if (lbfgs && features.has_pairs()) estimate.weights_bytes += bytes_of_items(*training.data, features.pairs);
  const double round = lbfgs ? static_cast<double>(blocks_of_a_round(1 << 20, features.K, options.threads)) : threads;
  estimate.labels_bytes = kNumber * pairs * (kPairsShared + kPairsPerThread * threads) + kNumber * K * K * round +
                          threads * std::min(kHeapPerThread, 20 * kNumber * pairs);
  return estimate;
}

double estimate_seconds(const Training& training, const Features& features, const Constraint& constraint,
                        const TrainOptions& options) {
  constexpr double worth = 1e9;  // products of a pass below which it takes a second at most
  const Dataset& data = *training.data;
  const double products = static_cast<double>(constraint.size().products), rows = static_cast<double>(data.positions());
  if (rows * products < worth) return 0;
  const std::int64_t sample = sample_size(data, products);
  const std::vector<double> w(static_cast<std::size_t>(features.size()), 0);
  std::vector<double> gradient(w.size());
  Objective part(data, features, constraint, 0, sample, 1);
  Objective none(data, features, constraint, 0, 0, 1);  // what a pass takes however short it is
  const double fixed = seconds_of(none, w, gradient), whole = seconds_of(part, w, gradient);
  const double each = std::max(0.0, whole - fixed) / static_cast<double>(data.position[sample]);
  const double threads = std::min<double>(options.threads, std::max(1u, std::thread::hardware_concurrency()));
  return fixed + each * rows / threads;
}

}  // namespace regccrf
