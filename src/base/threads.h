// Threads that sleep between jobs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace regccrf {

// run() has every member, the caller included, call job(member), and returns when all
// have.
class ThreadPool {
 public:
  ~ThreadPool();
  void run(int members, const std::function<void(int)>& job);

 private:
  void serve(int member);
  void grow(int workers);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int)>* job_ = nullptr;
  std::uint64_t round_ = 0;
  int wanted_ = 0, running_ = 0;
  bool stop_ = false;
};

}  // namespace regccrf
