// The order of a warp's work that keeps its lanes apart in shared memory. That has 32 banks of 4 bytes; the lanes of a
// warp that want different addresses of one bank wait for each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace regccrf {

// Where a piece of work reads and writes, in numbers of 4 bytes: one access after the other.
using BankAddresses = std::array<std::int32_t, 4>;

// The pieces in an order in which 32 neighbours, a warp, meet in few banks: each warp takes the next pieces that meet
// nobody, then those with which two meet, and so on.
std::vector<std::size_t> spread_over_banks(const std::vector<BankAddresses>& pieces);

}  // namespace regccrf
