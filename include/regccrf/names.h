// Names: a growing list of distinct names, numbered from 0 in the order in which they are added. Attributes and labels
// are kept like this while data is read. A name takes its own bytes and about 30 more.
//
//   Names names;
//   std::int32_t number = names.add("word=Bank");         // 0
//   bool known = names.find("word=Bank").has_value();     // true
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace regccrf {

class Names {
 public:
  Names();
  ~Names();
  Names(const Names&);
  Names& operator=(const Names&);
  Names(Names&&) noexcept;
  Names& operator=(Names&&) noexcept;

  std::int32_t add(std::string_view name);  // its number, new or old
  std::optional<std::int32_t> find(std::string_view name) const;
  std::string_view name(std::int32_t number) const;  // valid until the next add()
  std::int32_t size() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }  // internal

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace regccrf
