// Label names and ids, and the suggestions for names that are not among them.
#include "regccrf/labels.h"

#include <algorithm>
#include <unordered_map>

#include "regccrf/error.h"

namespace regccrf {

struct Labels::Index {
  std::vector<std::string> names;
  std::unordered_map<std::string_view, Label> ids;  // views into names
};

Labels::Labels() : Labels(std::vector<std::string>{}) {}

Labels::Labels(std::vector<std::string> names) {
  auto index = std::make_shared<Index>();
  index->names = std::move(names);
  for (std::size_t i = 0; i < index->names.size(); ++i) {
    const std::string& name = index->names[i];
    if (name.empty()) throw Error("[labels] label " + std::to_string(i) + " is empty");
    if (!index->ids.emplace(name, static_cast<Label>(i)).second) {
      throw Error("[labels] the label '" + name + "' is given twice; labels must be distinct");
    }
  }
  index_ = std::move(index);
}

int Labels::size() const { return static_cast<int>(index_->names.size()); }
const std::string& Labels::name(Label label) const { return index_->names.at(static_cast<std::size_t>(label)); }
const std::vector<std::string>& Labels::names() const { return index_->names; }

std::optional<Label> Labels::find(std::string_view name) const {
  const auto it = index_->ids.find(name);
  if (it == index_->ids.end()) return std::nullopt;
  return it->second;
}

Label Labels::id(std::string_view name) const {
  if (const auto found = find(name)) return *found;
  std::string message = "[labels] unknown label '" + std::string(name) + "'";
  if (const auto near = nearest(name, names())) message += ": did you mean '" + *near + "'?";
  throw Error(message);
}

std::vector<Label> Labels::ids(std::span<const std::string> sequence) const {
  std::vector<Label> out;
  out.reserve(sequence.size());
  for (const std::string& name : sequence) out.push_back(id(name));
  return out;
}

std::vector<std::string> Labels::names(std::span<const Label> sequence) const {
  std::vector<std::string> out;
  out.reserve(sequence.size());
  for (Label label : sequence) out.push_back(name(label));
  return out;
}

bool Labels::operator==(const Labels& other) const {
  return index_ == other.index_ || index_->names == other.index_->names;
}

namespace {

// Edits (insert, delete, replace, swap of neighbours) that turn x into y.
std::size_t edit_distance(std::string_view x, std::string_view y) {
  std::vector<std::size_t> before(y.size() + 1), last(y.size() + 1), now(y.size() + 1);
  for (std::size_t j = 0; j <= y.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= x.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= y.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (x[i - 1] != y[j - 1])});
      const bool swapped = i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1];
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

}  // namespace regccrf
