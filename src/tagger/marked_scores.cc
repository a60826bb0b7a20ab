// Marked rows are K rows of K numbers, one for each label before, and a last one for none (see marked_scores.h).
#include "tagger/marked_scores.h"

#include <algorithm>
#include <cstddef>

namespace regccrf {

void mark_emissions(int K, std::span<const double> h, std::span<const double> g, std::span<double> out) {
  const auto k = static_cast<std::size_t>(K);
  const std::size_t rows = h.size() / std::max<std::size_t>(k, 1);
  double* to = out.data();
  for (std::size_t row = 0; row < rows; ++row) {
    const double* from = h.data() + row * k;
    for (std::size_t a = 0; a < k; ++a, to += k) {
      for (std::size_t b = 0; b < k; ++b) to[b] = from[b] + (g.empty() ? 0 : g[a * k + b]);
    }
    std::copy_n(from, k, to);
    to += k;
  }
}

void sum_marks(int K, std::span<const double> marked, std::span<double> out) {
  const auto k = static_cast<std::size_t>(K);
  std::fill(out.begin(), out.end(), 0.0);
  const double* from = marked.data();
  for (std::size_t row = 0; row < out.size(); row += k) {
    for (std::size_t a = 0; a <= k; ++a, from += k) {
      for (std::size_t b = 0; b < k; ++b) out[row + b] += from[b];
    }
  }
}

void add_pairs(int K, std::span<const double> marked, std::span<double> out) {
  const auto k = static_cast<std::size_t>(K);
  for (std::size_t row = 0; row < marked.size(); row += k * (k + 1)) {
    for (std::size_t ab = 0; ab < k * k; ++ab) out[ab] += marked[row + ab];
  }
}

}  // namespace regccrf
