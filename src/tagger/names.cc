// Names find their number by the hash table that a model file keeps too.
#include "regccrf/names.h"

#include <utility>

#include "regccrf/error.h"
#include "tagger/name_table.h"

namespace regccrf {
namespace {

void put(NameSlot slot, std::vector<NameSlot>& table) {
  const std::size_t mask = table.size() - 1;
  std::size_t at = slot.hash & mask;
  while (table[at].number >= 0) at = (at + 1) & mask;
  table[at] = slot;
}

}  // namespace

void Names::Impl::grow() {
  std::vector<NameSlot> larger(table.size() * 2);
  for (const NameSlot& slot : table) {
    if (slot.number >= 0) put(slot, larger);
  }
  table = std::move(larger);
}

Names::Names() : impl_(std::make_unique<Impl>()) {}
Names::~Names() = default;
Names::Names(const Names& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
Names& Names::operator=(const Names& other) { return *this = Names(other); }
Names::Names(Names&&) noexcept = default;
Names& Names::operator=(Names&&) noexcept = default;

std::string_view Names::name(std::int32_t number) const { return impl_->name(number); }
std::int32_t Names::size() const { return impl_->size(); }
std::optional<std::int32_t> Names::find(std::string_view name) const { return impl_->find(name, hash_name(name)); }

std::int32_t Names::add(std::string_view name) {
  Impl& all = *impl_;
  const std::uint32_t hash = hash_name(name);
  if (const auto known = all.find(name, hash)) return *known;
  if (all.size() == INT32_MAX - 1) throw Error("[names] more than 2,147,483,646 different attributes");
  if (static_cast<std::size_t>(all.size()) * 2 >= all.table.size()) all.grow();
  put({hash, all.size()}, all.table);
  all.text.append(name);
  all.begin.push_back(static_cast<std::int64_t>(all.text.size()));
  return all.size() - 1;
}

}  // namespace regccrf
