// What a Workspace holds: one arena for each thread, the threads themselves (asleep between calls), and the counters.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/arena.h"
#include "base/threads.h"
#include "regccrf/inference.h"

namespace regccrf {

struct Workspace::Impl {
  ThreadPool pool;
  std::vector<std::unique_ptr<Arena>> arenas;  // one for each member
  Arena shared;                                // what a call prepares once for all members
  std::atomic<std::int64_t> sequences{0}, doubled{0}, wide{0}, checkpointed{0}, uncertified{0};
  std::atomic<double> largest_gap{0};

  void note_gap(double gap) {
    if (std::isinf(gap)) {
      ++uncertified;
      return;
    }
    double largest = largest_gap;
    while (gap > largest && !largest_gap.compare_exchange_weak(largest, gap)) {
    }
  }
};

}  // namespace regccrf
