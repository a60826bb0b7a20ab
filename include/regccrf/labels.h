// Labels: what the user sees (`B-ARG0`, `O`), in a fixed order. A label's place in that order is its id, and everything
// after the language layer works with ids. A value: immutable, cheap to copy, safe to share between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace regccrf {

using Label = std::int32_t;  // 0 … K-1

class Labels {
 public:
  Labels();
  explicit Labels(std::vector<std::string> names);  // distinct and not empty, or Error

  int size() const;  // K
  const std::string& name(Label label) const;
  const std::vector<std::string>& names() const;

  std::optional<Label> find(std::string_view name) const;
  Label id(std::string_view name) const;  // an Error names the nearest known label
  std::vector<Label> ids(std::span<const std::string> sequence) const;
  std::vector<std::string> names(std::span<const Label> sequence) const;

  bool operator==(const Labels& other) const;

 private:
  struct Index;
  std::shared_ptr<const Index> index_;
};

}  // namespace regccrf
