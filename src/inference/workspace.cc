// Workspace: made and moved (see workspace.h).
#include "inference/workspace.h"

namespace regccrf {

Workspace::Workspace() : impl_(std::make_unique<Impl>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

Statistics Workspace::statistics() const {
  return {impl_->sequences.load(),    impl_->doubled.load(),     impl_->wide.load(),
          impl_->checkpointed.load(), impl_->largest_gap.load(), impl_->uncertified.load()};
}

}  // namespace regccrf
