// Scores of marked labels (constraint/pairs.h), from those of labels, and sums over marks on the way back.
#pragma once

#include <cstdint>
#include <span>

namespace regccrf {

// out[row, (a, b)] = h[row, b] + g[a, b] and out[row, (b)] = h[row, b]. What is illegal at a sequence's first position,
// or behind it, is for the constraint to say. h: [rows, K]; g: [K, K], or empty for none; out: [rows, K · (K + 1)]
void mark_emissions(int K, std::span<const double> h, std::span<const double> g, std::span<double> out);

// out[row, b] = the sum over b's marks. marked: [rows, K · (K + 1)]; out: [rows, K]
void sum_marks(int K, std::span<const double> marked, std::span<double> out);

// out[a, b] += the sum over all rows of (a, b). out: [K, K]
void add_pairs(int K, std::span<const double> marked, std::span<double> out);

}  // namespace regccrf
