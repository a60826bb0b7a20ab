// Label names and ids, and the suggestions for names that are not among them.
#include "regccrf/labels.h"

#include <algorithm>
#include <unordered_map>

#include "base/spelling.h"
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

}  // namespace regccrf
