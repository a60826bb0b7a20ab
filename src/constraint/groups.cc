// Agglomerative (see groups.h): states with equal label sets are a class, each class begins as a group, and the two
// groups whose union saves most are joined until none saves anything. Where there are too many to compare all pairs,
// neighbours are grouped first: classes stand in the order of their products, so that alike ones are near.
#include "constraint/groups.h"

#include <algorithm>
#include <bit>
#include <span>

namespace regccrf {

namespace {

constexpr std::size_t kMostCompared = 512;  // groups at a time

using Bits = std::vector<std::uint64_t>;  // a set of labels

std::int64_t size_of(const Bits& bits) {
  std::int64_t size = 0;
  for (std::uint64_t word : bits) size += std::popcount(word);
  return size;
}

std::int64_t size_of_union(const Bits& x, const Bits& y) {
  std::int64_t size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) size += std::popcount(x[i] | y[i]);
  return size;
}

Bits set_of(const std::int32_t* labels, std::int32_t count, std::int32_t K) {
  Bits bits(static_cast<std::size_t>(K) / 64 + 1, 0);
  for (std::int32_t i = 0; i < count; ++i) bits[labels[i] / 64] |= std::uint64_t{1} << (labels[i] % 64);
  return bits;
}

std::vector<Label> labels_of(const Bits& bits, std::int32_t K) {
  std::vector<Label> labels;
  for (Label a = 0; a < K; ++a) {
    if (bits[a / 64] >> (a % 64) & 1) labels.push_back(a);
  }
  return labels;
}

struct Draft {
  std::vector<std::int32_t> states;
  Bits in, out;
  std::int64_t products;  // of one state, padded
  std::int64_t needed;    // of all, without padding

  std::int64_t count() const { return static_cast<std::int64_t>(states.size()); }
};

void merge(Draft& into, Draft& other) {
  into.states.insert(into.states.end(), other.states.begin(), other.states.end());
  for (std::size_t i = 0; i < into.in.size(); ++i) into.in[i] |= other.in[i];
  for (std::size_t i = 0; i < into.out.size(); ++i) into.out[i] |= other.out[i];
  into.products = size_of(into.in) * size_of(into.out);
  into.needed += other.needed;
  other.states.clear();
}

// Joins the two that save most, again and again.
class Joiner {
 public:
  Joiner(std::span<Draft> drafts, const GroupCost& cost) : drafts_(drafts), cost_(cost), best_(drafts.size()) {
    for (std::size_t i = 0; i < drafts.size(); ++i) search(i);
  }

  // Those that were joined into others are left without states.
  void run() {
    for (std::size_t i = first(); i < drafts_.size() && best_[i].saving > 0; i = first()) {
      const std::size_t j = best_[i].with;
      merge(drafts_[i], drafts_[j]);
      search(i);
      for (std::size_t k = 0; k < drafts_.size(); ++k) {
        if (gone(k) || k == i) continue;
        if (best_[k].with == i || best_[k].with == j) {
          search(k);
        } else if (const std::int64_t s = saving(k, i); s > best_[k].saving) {
          best_[k] = {s, i};
        }
      }
    }
  }

 private:
  struct Best {
    std::int64_t saving = 0;
    std::size_t with = 0;
  };

  bool gone(std::size_t i) const { return drafts_[i].states.empty(); }

  // The one that saves most; the number of drafts where none is left.
  std::size_t first() const {
    std::size_t i = drafts_.size();
    for (std::size_t k = 0; k < drafts_.size(); ++k) {
      if (!gone(k) && (i == drafts_.size() || best_[k].saving > best_[i].saving)) i = k;
    }
    return i;
  }

  void search(std::size_t i) {
    best_[i] = {};
    for (std::size_t j = 0; j < drafts_.size(); ++j) {
      if (j == i || gone(j)) continue;
      const std::int64_t s = saving(i, j);
      if (s > best_[i].saving) best_[i] = {s, j};
    }
  }

  // What one group in the place of two saves; 0 where it would be padded too much.
  std::int64_t saving(std::size_t i, std::size_t j) const {
    const Draft &x = drafts_[i], &y = drafts_[j];
    const std::int64_t padded = size_of_union(x.in, y.in) * size_of_union(x.out, y.out), count = x.count() + y.count();
    const auto needed = static_cast<double>(x.needed + y.needed);
    if (cost_.most_padding > 0 && static_cast<double>(count * padded) > cost_.most_padding * needed) return 0;
    return (x.count() + cost_.overhead) * x.products + (y.count() + cost_.overhead) * y.products -
           (count + cost_.overhead) * padded;
  }

  std::span<Draft> drafts_;
  const GroupCost& cost_;
  std::vector<Best> best_;
};

// States with equal label sets, which are neighbours (topology.h).
std::vector<Draft> classes_of(const Topology& t) {
  std::vector<Draft> classes;
  for (std::int32_t q = 0; q < t.Q; ++q) {
    Draft one{{q},
              set_of(t.arrival_label + t.arrival_begin[q], t.arrival_begin[q + 1] - t.arrival_begin[q], t.K),
              set_of(t.node_label + t.node_begin[q], t.node_begin[q + 1] - t.node_begin[q], t.K),
              0,
              0};
    one.needed = one.products = size_of(one.in) * size_of(one.out);
    if (!classes.empty() && classes.back().in == one.in && classes.back().out == one.out) {
      merge(classes.back(), one);
    } else {
      classes.push_back(std::move(one));
    }
  }
  return classes;
}

void join_alike(std::vector<Draft>& drafts, const GroupCost& cost) {
  for (std::size_t begin = 0; begin < drafts.size(); begin += kMostCompared)
    Joiner(std::span(drafts).subspan(begin, std::min(kMostCompared, drafts.size() - begin)), cost).run();
  std::erase_if(drafts, [](const Draft& draft) { return draft.states.empty(); });
}

}  // namespace

std::vector<StateGroup> group_states(const Topology& topology, const GroupCost& cost) {
  std::vector<Draft> drafts = classes_of(topology);
  const bool in_parts = drafts.size() > kMostCompared;
  join_alike(drafts, cost);
  if (in_parts) join_alike(drafts, cost);
  std::vector<StateGroup> groups;
  for (Draft& draft : drafts)
    groups.push_back({std::move(draft.states), labels_of(draft.in, topology.K), labels_of(draft.out, topology.K)});
  return groups;
}

}  // namespace regccrf
