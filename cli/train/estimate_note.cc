#include "cli/train/estimate_note.h"

#include <cstdio>
#include <iostream>

#include "cli/train/free_memory.h"
#include "cli/train/progress_line.h"

namespace regccrf::cli {
namespace {

constexpr double kGigabyte = 1e9;
constexpr double kMuch = kGigabyte;  // bytes below which memory is not spoken of
constexpr double kShort = 1;         // seconds below which an iteration is not spoken of
constexpr double kLong = 60;

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", bytes / kGigabyte);
  return text;
}

bool unconstrained(const Training& training) { return training.constrain != Constrain::train; }

std::string fewer_products(const Training& training) {
  const long long labels = training.labels.size();
  const long long products = unconstrained(training) ? labels * labels : training.constraint->size().products;
  return std::to_string(labels) + " labels take " + std::to_string(products) + " products a position: " +
         (unconstrained(training)
              ? "fewer labels, or a language in which few labels may follow each other (-e), take less"
              : "fewer labels or a simpler language take less (regccrf compile says how many)");
}

std::string fewer_weights(const TrainOptions& options) {
  std::string advice = "--min-count 2 or more leaves out rare attributes";
  if (options.all_features) advice += ", and without --all-features there are only weights that were seen";
  if (options.all_transitions) advice += ", without --all-transitions only transitions that were seen";
  return advice;
}

void note_memory(const Estimate& estimate, const Training& training, const TrainOptions& options) {
  const double free = free_memory();
  if (estimate.bytes() > kMuch) std::cerr << "takes about " << gigabytes(estimate.bytes()) << " of memory\n";
  if (estimate.bytes() <= free) return;
  const bool labels = estimate.labels_bytes > estimate.weights_bytes;
  std::cerr << "regccrf: warning: about " << gigabytes(estimate.bytes()) << " of memory are needed, and "
            << gigabytes(free) << " are free. "
            << (labels ? fewer_products(training) + "; --threads 1 takes less too" : fewer_weights(options)) << "\n";
}

void note_time(double seconds, const Training& training) {
  if (seconds > kShort) std::cerr << "an iteration takes about " << duration(seconds) << "\n";
  if (seconds <= kLong) return;
  std::cerr << "regccrf: warning: iterations are slow, and there may be a hundred of them. " << fewer_products(training)
            << "; --optimizer adagrad needs fewer iterations; --checkpoint FILE saves the state of training\n";
}

}  // namespace

void note_estimate(const Estimate& estimate, const Training& training, const TrainOptions& options) {
  if (!estimate.seconds) return note_memory(estimate, training, options);
  note_time(*estimate.seconds, training);
}

}  // namespace regccrf::cli
