// What a Workspace holds: one arena for each thread, the threads themselves (asleep between calls), and the counters.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/arena.h"
#include "regccrf/inference.h"

namespace regccrf {

// Threads that wait for a job. run() has every member, the caller included, call job(member), and returns when all
// have.
class Pool {
 public:
  ~Pool();
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

struct Workspace::Impl {
  Pool pool;
  std::vector<std::unique_ptr<Arena>> arenas;  // one for each member
  Arena shared;                                // what a call prepares once for all members
  std::atomic<std::int64_t> sequences{0}, doubled{0}, wide{0}, checkpointed{0};
};

}  // namespace regccrf
