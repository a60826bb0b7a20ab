// Budget: the limits of one call, with its clock running. Constructions ask it as they grow.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "regccrf/error.h"

namespace regccrf {

struct Budget {
  using Clock = std::chrono::steady_clock;

  std::int64_t states;
  std::int64_t arcs;
  double seconds;
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();  // of one construction
  Clock::time_point deadline;

  Budget(std::int64_t most_states, std::int64_t most_arcs, double most_seconds)
      : states(most_states), arcs(most_arcs), seconds(most_seconds), deadline(deadline_after(most_seconds)) {}

  // The clock counts nanoseconds in 64 bits: a limit of many years is none.
  static Clock::time_point deadline_after(double seconds) {
    if (std::isnan(seconds)) throw Error("[limits] the limit of seconds is not a number");
    if (seconds > 1e9) return Clock::time_point::max();
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::max(seconds, 0.0)));
  }

  // The same clock, fewer states: for a construction that only pays off when it stays small.
  Budget at_most_states(std::int64_t most) const {
    Budget smaller = *this;
    if (most < smaller.states) smaller.states = most;
    return smaller;
  }

  // The same, and less work: for a construction that may turn out to be of no use.
  Budget at_most_steps(std::int64_t most) const {
    Budget smaller = *this;
    smaller.steps = std::min(steps, most);
    smaller.arcs = std::min(arcs, most);
    return smaller;
  }

  void check_steps(const std::string& operation, std::int64_t taken) const {
    if (taken <= steps) return;
    throw LimitError("[" + operation + "] needs more than " + std::to_string(steps) + " steps");
  }

  void check_time(const std::string& operation) const {
    if (Clock::now() < deadline) return;
    std::string limit = std::to_string(seconds);
    limit.erase(limit.find_last_not_of('0') + 1);
    if (limit.back() == '.') limit.pop_back();
    throw LimitError("[" + operation + "] took longer than the limit of " + limit +
                     " s; raise it with --max-seconds (Limits::seconds)");
  }

  void check_size(const std::string& operation, std::int64_t have_states, std::int64_t have_arcs) const {
    if (have_states > states) {
      throw LimitError("[" + operation + "] needs more than the limit of " + std::to_string(states) +
                       " states; raise it with --max-states (Limits::states)");
    }
    if (have_arcs > arcs) {
      throw LimitError("[" + operation + "] needs more than the limit of " + std::to_string(arcs) +
                       " arcs; raise it with --max-arcs (Limits::arcs)");
    }
  }
};

}  // namespace regccrf
