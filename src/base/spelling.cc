#include "base/spelling.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

namespace regccrf {
namespace {

// Upper and lower case count as the same: BIO is a likely slip for bio.
bool same(char x, char y) {
  return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
}

// Edits (insert, delete, replace, swap of neighbours) that turn x into y.
std::size_t edit_distance(std::string_view x, std::string_view y) {
  std::vector<std::size_t> before(y.size() + 1), last(y.size() + 1), now(y.size() + 1);
  for (std::size_t j = 0; j <= y.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= x.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= y.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same(x[i - 1], y[j - 1]) ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && same(x[i - 1], y[j - 2]) && same(x[i - 2], y[j - 1]);
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[y.size()];
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> known) {
  const std::size_t longest = 100;  // nobody misspells a longer word, and the distance is quadratic
  if (word.size() > longest) return std::nullopt;
  const std::size_t most = std::max<std::size_t>(1, word.size() / 3);
  std::optional<std::string> best;
  std::size_t best_distance = most + 1;
  for (const std::string& candidate : known) {
    if (candidate.size() > word.size() + most || candidate.size() + most < word.size()) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string listed(std::span<const std::string> names) {
  const std::size_t most = 12;
  std::string text;
  for (const std::string& name : names.first(std::min(names.size(), most))) text += (text.empty() ? "" : " ") + name;
  return names.size() > most ? text + " … (" + std::to_string(names.size()) + " in all)" : text;
}

}  // namespace regccrf
