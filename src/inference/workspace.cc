// The workspace: scratch memory, sleeping threads, counters.
#include "inference/workspace.h"

namespace regccrf {

Workspace::Workspace() : impl_(std::make_unique<Impl>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

Statistics Workspace::statistics() const {
  return {impl_->sequences.load(), impl_->doubled.load(), impl_->wide.load(), impl_->checkpointed.load()};
}

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pool::grow(int workers) {
  while (static_cast<int>(workers_.size()) < workers) {
    const int member = static_cast<int>(workers_.size()) + 1;
    workers_.emplace_back([this, member] { serve(member); });
  }
}

void Pool::run(int members, const std::function<void(int)>& job) {
  if (members <= 1) return job(0);
  {
    const std::lock_guard lock(mutex_);
    grow(members - 1);
    job_ = &job;
    wanted_ = members - 1;
    running_ = members - 1;
    ++round_;
  }
  wake_.notify_all();
  job(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return running_ == 0; });
  job_ = nullptr;
}

void Pool::serve(int member) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || (round_ != seen && member <= wanted_ && job_ != nullptr); });
    if (stop_) return;
    seen = round_;
    const std::function<void(int)>* job = job_;
    lock.unlock();
    (*job)(member);
    lock.lock();
    if (--running_ == 0) done_.notify_one();
  }
}

}  // namespace regccrf
