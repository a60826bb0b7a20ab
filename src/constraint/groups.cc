// Greedy: the two groups whose union saves most are joined, until none does (see groups.h).
#include "constraint/groups.h"

#include <algorithm>

namespace regccrf {

namespace {

using Bits = std::vector<std::uint64_t>;  // a set of labels

struct Draft {
  std::vector<std::int32_t> states;
  Bits in, out;
};

Bits set_of(const std::int32_t* labels, std::int32_t count, std::int32_t K) {
  Bits bits(static_cast<std::size_t>(K) / 64 + 1, 0);
  for (std::int32_t i = 0; i < count; ++i) bits[labels[i] / 64] |= std::uint64_t{1} << (labels[i] % 64);
  return bits;
}

std::int64_t size_of(const Bits& bits) {
  std::int64_t size = 0;
  for (std::uint64_t word : bits) size += __builtin_popcountll(word);
  return size;
}

std::int64_t size_of_union(const Bits& x, const Bits& y) {
  std::int64_t size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) size += __builtin_popcountll(x[i] | y[i]);
  return size;
}

// Products of a group, with what its matrix and loops cost counted as so many further states.
std::int64_t cost(std::int64_t states, std::int64_t in, std::int64_t out) {
  constexpr std::int64_t overhead = 3;
  return (states + overhead) * in * out;
}

void merge(Draft& into, const Draft& other) {
  into.states.insert(into.states.end(), other.states.begin(), other.states.end());
  for (std::size_t i = 0; i < into.in.size(); ++i) into.in[i] |= other.in[i];
  for (std::size_t i = 0; i < into.out.size(); ++i) into.out[i] |= other.out[i];
}

// Greedily joins the two groups whose union saves most, until none does.
void join_alike(std::vector<Draft>& drafts) {
  constexpr std::size_t most = 1500;  // past this the search would cost more than it saves
  if (drafts.size() > most) return;
  const auto saving = [&](std::size_t i, std::size_t j) {
    const Draft &x = drafts[i], &y = drafts[j];
    const auto nx = static_cast<std::int64_t>(x.states.size()), ny = static_cast<std::int64_t>(y.states.size());
    return cost(nx, size_of(x.in), size_of(x.out)) + cost(ny, size_of(y.in), size_of(y.out)) -
           cost(nx + ny, size_of_union(x.in, y.in), size_of_union(x.out, y.out));
  };
  struct Best {
    std::int64_t saving = 0;
    std::size_t with = 0;
  };
  std::vector<Best> best(drafts.size());
  std::vector<std::uint8_t> gone(drafts.size(), 0);
  const auto search = [&](std::size_t i) {
    best[i] = {};
    for (std::size_t j = 0; j < drafts.size(); ++j) {
      if (j == i || gone[j]) continue;
      const std::int64_t s = saving(i, j);
      if (s > best[i].saving) best[i] = {s, j};
    }
  };
  for (std::size_t i = 0; i < drafts.size(); ++i) search(i);
  for (;;) {
    std::size_t i = 0;
    for (std::size_t k = 0; k < drafts.size(); ++k) {
      if (!gone[k] && (gone[i] || best[k].saving > best[i].saving)) i = k;
    }
    if (gone[i] || best[i].saving <= 0) break;
    const std::size_t j = best[i].with;
    merge(drafts[i], drafts[j]);
    gone[j] = 1;
    search(i);
    for (std::size_t k = 0; k < drafts.size(); ++k) {
      if (gone[k] || k == i) continue;
      if (best[k].with == i || best[k].with == j) {
        search(k);
      } else if (const std::int64_t s = saving(k, i); s > best[k].saving) {
        best[k] = {s, i};
      }
    }
  }
  std::vector<Draft> left;
  for (std::size_t k = 0; k < drafts.size(); ++k) {
    if (!gone[k]) left.push_back(std::move(drafts[k]));
  }
  drafts = std::move(left);
}

std::vector<Label> labels_of(const Bits& bits, std::int32_t K) {
  std::vector<Label> labels;
  for (Label a = 0; a < K; ++a) {
    if (bits[a / 64] >> (a % 64) & 1) labels.push_back(a);
  }
  return labels;
}

}  // namespace

std::vector<StateGroup> group_states(const Topology& t) {
  std::vector<Draft> drafts;
  const auto labels_equal = [](const std::int32_t* begin, const std::int32_t* label, std::int32_t p, std::int32_t q) {
    return std::equal(label + begin[p], label + begin[p + 1], label + begin[q], label + begin[q + 1]);
  };
  for (std::int32_t q = 0; q < t.Q; ++q) {
    if (q > 0 && labels_equal(t.arrival_begin, t.arrival_label, q - 1, q) &&
        labels_equal(t.node_begin, t.node_label, q - 1, q)) {
      drafts.back().states.push_back(q);
      continue;
    }
    drafts.push_back({{q},
                      set_of(t.arrival_label + t.arrival_begin[q], t.arrival_begin[q + 1] - t.arrival_begin[q], t.K),
                      set_of(t.node_label + t.node_begin[q], t.node_begin[q + 1] - t.node_begin[q], t.K)});
  }
  join_alike(drafts);
  std::vector<StateGroup> groups;
  for (Draft& draft : drafts)
    groups.push_back({std::move(draft.states), labels_of(draft.in, t.K), labels_of(draft.out, t.K)});
  return groups;
}

}  // namespace regccrf
