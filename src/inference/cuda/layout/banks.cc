// See banks.h.
#include "inference/cuda/layout/banks.h"

#include <algorithm>
#include <set>

namespace regccrf {

namespace {

constexpr std::size_t kLanes = 32, kBanks = 32;

// The addresses that a warp wants of each bank, access by access. Lanes that want the same one do not wait.
class Warp {
 public:
  // Whether no bank has more than `most` addresses with this piece.
  bool takes(const BankAddresses& piece, std::size_t most) const {
    for (std::size_t k = 0; k < piece.size(); ++k) {
      const auto& wanted = of_bank(k, piece[k]);
      if (wanted.size() >= most && wanted.count(piece[k]) == 0) return false;
    }
    return true;
  }
  void take(const BankAddresses& piece) {
    for (std::size_t k = 0; k < piece.size(); ++k) wanted_[k][bank(piece[k])].insert(piece[k]);
  }

 private:
  static std::size_t bank(std::int32_t address) { return static_cast<std::size_t>(address) % kBanks; }
  const std::set<std::int32_t>& of_bank(std::size_t k, std::int32_t address) const { return wanted_[k][bank(address)]; }

  std::array<std::array<std::set<std::int32_t>, kBanks>, std::tuple_size_v<BankAddresses>> wanted_;
};

}  // namespace

std::vector<std::size_t> spread_over_banks(const std::vector<BankAddresses>& pieces) {
  std::vector<std::size_t> order;
  std::vector<bool> placed(pieces.size());
  while (order.size() < pieces.size()) {
    const std::size_t full = std::min(pieces.size(), order.size() + kLanes);
    Warp warp;
    for (std::size_t most = 1; order.size() < full; ++most) {
      for (std::size_t i = 0; i < pieces.size() && order.size() < full; ++i) {
        if (placed[i] || !warp.takes(pieces[i], most)) continue;
        warp.take(pieces[i]);
        placed[i] = true;
        order.push_back(i);
      }
    }
  }
  return order;
}

}  // namespace regccrf
