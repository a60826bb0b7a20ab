// Sums over rows of numbers that lie side by side, a vector's lanes: the arithmetic of walks in which every node of a
// chain carries many numbers at once. A row has `width` numbers, a multiple of kRowUnit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regccrf {

constexpr std::size_t kRowUnit = 8;
constexpr std::size_t padded(std::size_t width) { return (width + kRowUnit - 1) / kRowUnit * kRowUnit; }

// to[w] = Σ_k weight[k] · rows[index[k], w], for k < count
void sum_rows(const double* weight, const std::int32_t* index, std::size_t count, const double* rows, std::size_t width,
              double* to);
// The same over all rows, with weights that lie `stride` apart: to[w] = Σ_k weight[k · stride] · rows[k, w]
void sum_all_rows(const double* weight, std::size_t stride, std::size_t count, const double* rows, std::size_t width,
                  double* to);
// rows[index[k], w] += weight[k] · from[w]
void add_to_rows(const double* weight, const std::int32_t* index, std::size_t count, const double* from,
                 std::size_t width, double* rows);
// to[k] = Σ_w rows[index[k], w] · with[w]
void dot_rows(const std::int32_t* index, std::size_t count, const double* rows, std::size_t width, const double* with,
              double* to);

}  // namespace regccrf
