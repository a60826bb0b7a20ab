// A job is announced under the mutex by a new round; each member does it once (see threads.h).
#include "base/threads.h"

namespace regccrf {

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::grow(int workers) {
  while (static_cast<int>(workers_.size()) < workers) {
    const int member = static_cast<int>(workers_.size()) + 1;
    workers_.emplace_back([this, member] { serve(member); });
  }
}

void ThreadPool::run(int members, const std::function<void(int)>& job) {
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

void ThreadPool::serve(int member) {
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
