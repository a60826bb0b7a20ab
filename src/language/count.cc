// Counting, drawing and listing.
//
// In an unambiguous automaton, sequences are accepting paths. So they are counted by one pass over the arcs per
// position (exact integers, GMP), and drawn uniformly by walking forward with each arc taken in proportion to the
// number of ways to finish behind it. The drawing keeps those numbers as logarithms in double: one per state and
// position.
#include "language/count.h"

#include <gmp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "automaton/automaton.h"

namespace regccrf {
namespace {

class Integers {
 public:
  explicit Integers(std::size_t size) : values_(size) {
    for (auto& value : values_) mpz_init(&value);
  }
  ~Integers() {
    for (auto& value : values_) mpz_clear(&value);
  }
  Integers(const Integers&) = delete;
  Integers& operator=(const Integers&) = delete;
  mpz_ptr operator[](std::size_t i) { return &values_[i]; }
  void set_zero() {
    for (auto& value : values_) mpz_set_ui(&value, 0);
  }
  void swap(Integers& other) { values_.swap(other.values_); }

 private:
  std::vector<__mpz_struct> values_;
};

constexpr double kMostBytes = 4e9;
constexpr double kNone = -std::numeric_limits<double>::infinity();

double log_add(double x, double y) {
  if (x < y) std::swap(x, y);
  return y == kNone ? x : x + std::log1p(std::exp(y - x));
}

// ways[n][q]: log of the number of ways to reach acceptance from q in n steps. [length + 1, Q]
std::vector<std::vector<double>> log_ways(const Automaton& automaton, std::size_t length, const Budget& budget) {
  const double bytes = (static_cast<double>(length) + 1) * automaton.states() * sizeof(double);
  if (bytes > kMostBytes) {
    throw LimitError("[random] length " + std::to_string(length) + " with " + std::to_string(automaton.states()) +
                     " states needs more than 4 GB; draw shorter sequences");
  }
  std::vector<std::vector<double>> ways(length + 1, std::vector<double>(automaton.accepting.size(), kNone));
  for (State q = 0; q < automaton.states(); ++q) {
    if (automaton.accepting[q]) ways[0][q] = 0;
  }
  for (std::size_t n = 1; n <= length; ++n) {
    budget.check_time("random");
    for (const Arc& arc : automaton.arcs) ways[n][arc.from] = log_add(ways[n][arc.from], ways[n - 1][arc.to]);
  }
  return ways;
}

// What is asked for must fit: `many` sequences of this length.
void check_room(const std::string& operation, std::size_t length, std::size_t many) {
  const double overhead = sizeof(std::vector<Label>) + 16;
  const double bytes = (static_cast<double>(length) * sizeof(Label) + overhead) * (static_cast<double>(many) + 1);
  if (bytes <= kMostBytes) return;
  throw LimitError("[" + operation + "] " + std::to_string(many) + " sequences of length " + std::to_string(length) +
                   " need more than 4 GB; ask for fewer or shorter ones");
}

}  // namespace

std::string count_sequences(const Automaton& automaton, std::size_t length, const Budget& budget) {
  Integers now(automaton.accepting.size()), next(automaton.accepting.size());
  mpz_set_ui(now[automaton.start], 1);
  for (std::size_t n = 0; n < length; ++n) {
    budget.check_time("count");
    next.set_zero();
    for (const Arc& arc : automaton.arcs) mpz_add(next[arc.to], next[arc.to], now[arc.from]);
    now.swap(next);
  }
  Integers sum(1);
  for (State q = 0; q < automaton.states(); ++q) {
    if (automaton.accepting[q]) mpz_add(sum[0], sum[0], now[q]);
  }
  std::string text(mpz_sizeinbase(sum[0], 10) + 2, '\0');
  mpz_get_str(text.data(), 10, sum[0]);
  text.resize(text.find('\0'));
  return text;
}

std::vector<std::vector<Label>> random_sequences(const Automaton& automaton, std::size_t length, std::size_t many,
                                                 std::uint64_t seed, const Budget& budget) {
  check_room("random", length, many);
  const auto ways = log_ways(automaton, length, budget);
  if (ways[length][automaton.start] == kNone) return {};
  const std::vector<std::int64_t> begin = arcs_by_state(automaton);
  std::mt19937_64 generator(seed);
  std::vector<std::vector<Label>> result;
  for (std::size_t k = 0; k < many; ++k) {
    if (k % 1024 == 0) budget.check_time("random");
    std::vector<Label> sequence;
    State q = automaton.start;
    for (std::size_t left = length; left > 0; --left) {
      double draw = static_cast<double>(generator() >> 11) * 0x1p-53;
      std::int64_t chosen = -1;
      for (std::int64_t i = begin[q]; i < begin[q + 1]; ++i) {
        const double share = std::exp(ways[left - 1][automaton.arcs[i].to] - ways[left][q]);
        if (share == 0) continue;
        chosen = i;  // stays the last possible one if rounding leaves a rest
        if ((draw -= share) < 0) break;
      }
      sequence.push_back(automaton.arcs[chosen].label);
      q = automaton.arcs[chosen].to;
    }
    result.push_back(std::move(sequence));
  }
  return result;
}

std::vector<std::vector<Label>> list_sequences(const Automaton& automaton, std::size_t length, std::size_t most,
                                               const Budget& budget) {
  check_room("enumerate", length, automaton.accepting.size() / 8 / sizeof(Label));
  // can[n][q]: acceptance is reachable from q in exactly n steps
  std::vector<std::vector<bool>> can(length + 1, std::vector<bool>(automaton.accepting.size()));
  for (State q = 0; q < automaton.states(); ++q) can[0][q] = automaton.accepting[q];
  for (std::size_t n = 1; n <= length; ++n) {
    budget.check_time("enumerate");
    for (const Arc& arc : automaton.arcs) {
      if (can[n - 1][arc.to]) can[n][arc.from] = true;
    }
  }
  std::vector<std::vector<Label>> result;
  if (!can[length][automaton.start] || most == 0) return result;

  // Depth first over prefixes; each level holds the states that its prefix reaches and the labels still to try.
  const std::vector<std::int64_t> begin = arcs_by_state(automaton);
  struct Level {
    std::vector<std::pair<Label, State>> steps;  // sorted
    std::size_t at = 0;
  };
  const auto level_of = [&](const std::vector<State>& states, std::size_t left) {
    Level level;
    for (State q : states) {
      for (std::int64_t i = begin[q]; i < begin[q + 1]; ++i) {
        if (can[left - 1][automaton.arcs[i].to])
          level.steps.emplace_back(automaton.arcs[i].label, automaton.arcs[i].to);
      }
    }
    std::sort(level.steps.begin(), level.steps.end());
    level.steps.erase(std::unique(level.steps.begin(), level.steps.end()), level.steps.end());
    return level;
  };
  std::vector<Label> prefix;
  if (length == 0) return {prefix};
  std::vector<Level> levels = {level_of({automaton.start}, length)};
  while (!levels.empty()) {
    Level& level = levels.back();
    if (level.at == level.steps.size()) {
      levels.pop_back();
      if (!prefix.empty()) prefix.pop_back();
      continue;
    }
    const Label label = level.steps[level.at].first;
    std::vector<State> reached;
    for (; level.at < level.steps.size() && level.steps[level.at].first == label; ++level.at) {
      reached.push_back(level.steps[level.at].second);
    }
    prefix.push_back(label);
    if (prefix.size() < length) {
      levels.push_back(level_of(reached, length - prefix.size()));
      continue;
    }
    result.push_back(prefix);
    prefix.pop_back();
    if (result.size() == most) return result;
    if (result.size() % 4096 == 0) budget.check_time("enumerate");
  }
  return result;
}

bool has_longer(const Automaton& automaton, std::size_t length) {
  std::vector<bool> now(automaton.accepting.size()), next;
  now[automaton.start] = true;
  for (std::size_t n = 0; n <= length; ++n) {
    if (n > automaton.accepting.size()) return true;  // it went round a cycle
    next.assign(now.size(), false);
    bool any = false;
    for (const Arc& arc : automaton.arcs) {
      if (now[arc.from]) any = next[arc.to] = true;
    }
    if (!any) return false;
    now.swap(next);
  }
  return true;
}

}  // namespace regccrf
