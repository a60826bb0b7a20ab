// Philox4x32-10 (Salmon et al. 2011): random numbers as a function of a key and a counter, so that a draw depends on
// what it is for and on nothing that happened before it.
#pragma once

#include <array>
#include <cstdint>

#include "base/host_device.h"

namespace regccrf {

REGCCRF_BOTH inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0], p1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// In [0, 1), 53 bits: the draw of (seed, id, sample, position). Ids and positions count up to 2^48.
REGCCRF_BOTH inline double uniform(std::uint64_t seed, std::uint64_t id, std::uint32_t sample, std::uint64_t position) {
  const std::array<std::uint32_t, 4> counter{
      static_cast<std::uint32_t>(position), sample, static_cast<std::uint32_t>(id),
      static_cast<std::uint32_t>(id >> 32 << 16) ^ static_cast<std::uint32_t>(position >> 32)};
  const auto bits = philox(counter, {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t word = (static_cast<std::uint64_t>(bits[0]) << 32) | bits[1];
  return static_cast<double>(word >> 11) * 0x1.0p-53;
}

}  // namespace regccrf
