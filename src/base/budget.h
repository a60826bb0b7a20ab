// Budget: the limits of one call, with its clock running and its memory counted. Constructions ask it as they grow,
// each by a Meter of its own.
//
// Memory is counted, not measured: a construction says what its arrays hold, by their capacities, and whoever keeps its
// result says so from there on. A process may do other things meanwhile, and what it frees may not go back at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "regccrf/error.h"

namespace regccrf {

struct Budget {
  using Clock = std::chrono::steady_clock;
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

  std::int64_t states = kUnlimited;
  std::int64_t arcs = kUnlimited;
  std::int64_t bytes = kUnlimited;  // of all that the call holds at a time
  std::int64_t steps = kUnlimited;  // of one construction
  double seconds = std::numeric_limits<double>::infinity();
  Clock::time_point deadline = Clock::time_point::max();
  std::shared_ptr<std::int64_t> held = std::make_shared<std::int64_t>(0);  // bytes; shared by all copies

  Budget() = default;
  Budget(std::int64_t most_states, std::int64_t most_arcs, std::int64_t most_bytes, double most_seconds)
      : states(most_states),
        arcs(most_arcs),
        bytes(most_bytes),
        seconds(most_seconds),
        deadline(deadline_after(most_seconds)) {}

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
    smaller.states = std::min(states, most);
    return smaller;
  }

  // The same, and less work: for a construction that may turn out to be of no use.
  Budget at_most_steps(std::int64_t most) const {
    Budget smaller = *this;
    smaller.steps = std::min(steps, most);
    smaller.arcs = std::min(arcs, most);
    return smaller;
  }

  // The same memory, an earlier end.
  Budget at_most_seconds(double most) const {
    Budget smaller = *this;
    smaller.deadline = std::min(deadline, deadline_after(most));
    return smaller;
  }

  void check_steps(const std::string& operation, std::int64_t taken) const {
    if (taken <= steps) return;
    throw LimitError("[" + operation + "] needs more than " + std::to_string(steps) + " steps");
  }

  // `ahead`: seconds until the clock can be looked at again. What is held takes time to give back, too.
  void check_time(const char* operation, double ahead = 0) const {
    constexpr double seconds_to_free_byte = 2e-10;
    const std::chrono::duration<double> more(ahead + seconds_to_free_byte * static_cast<double>(*held));
    if (Clock::now() + std::chrono::duration_cast<Clock::duration>(more) < deadline) return;
    std::string limit = std::to_string(seconds);
    limit.erase(limit.find_last_not_of('0') + 1);
    if (limit.back() == '.') limit.pop_back();
    throw LimitError("[" + std::string(operation) + "] took longer than the limit of " + limit +
                     " s; raise it with --max-seconds (Limits::seconds)");
  }

  void check_size(const char* operation, std::int64_t have_states, std::int64_t have_arcs) const {
    if (have_states > states) {
      throw LimitError("[" + std::string(operation) + "] needs more than the limit of " + std::to_string(states) +
                       " states; raise it with --max-states (Limits::states)");
    }
    if (have_arcs > arcs) {
      throw LimitError("[" + std::string(operation) + "] needs more than the limit of " + std::to_string(arcs) +
                       " arcs; raise it with --max-arcs (Limits::arcs)");
    }
  }

  // malloc keeps some of what is given back to it: an eighth is added.
  void check_memory(const char* operation) const {
    if (*held + *held / 8 <= bytes) return;
    throw LimitError("[" + std::string(operation) + "] needs more than the limit of " +
                     std::to_string(bytes / 1'000'000) + " MB; raise it with --max-memory (Limits::memory)");
  }
};

// What one construction, or one keeper of results, takes of a budget. Its memory is given back when it goes.
class Meter {
 public:
  Meter(const Budget& budget, const char* operation) : budget_(budget), operation_(operation) {
    budget_.check_time(operation_);
  }
  ~Meter() { *budget_.held -= bytes_; }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Work done; cheap enough for every inner loop, which is what makes the clock hold.
  void step(std::int64_t steps = 1) {
    steps_ += steps;
    if (steps_ < next_look_) return;
    next_look_ = steps_ + kStepsBetweenLooks;
    budget_.check_time(operation_);
    budget_.check_steps(operation_, steps_);
  }
  std::int64_t steps() const { return steps_; }

  void size(std::int64_t states, std::int64_t arcs) const { budget_.check_size(operation_, states, arcs); }

  // All that it holds now, in bytes; called before the memory is taken where that is known. Nobody looks at the clock
  // while a large array is filled or copied to its new place, so the time that this takes must be left.
  void hold(std::int64_t bytes) {
    const std::int64_t more = bytes - std::exchange(bytes_, bytes);
    *budget_.held += more;
    budget_.check_memory(operation_);
    if (more > kLargeArray) budget_.check_time(operation_, kSecondsForByte * static_cast<double>(more));
  }
  void hold_more(std::int64_t bytes) { hold(bytes_ + bytes); }
  std::int64_t held() const { return bytes_; }

 private:
  static constexpr std::int64_t kStepsBetweenLooks = 1 << 15;  // well under a millisecond
  static constexpr std::int64_t kLargeArray = 1 << 22;         // bytes
  static constexpr double kSecondsForByte = 1e-9;              // of memory that is new to the process
  const Budget budget_;
  const char* operation_;
  std::int64_t steps_ = 0, next_look_ = kStepsBetweenLooks, bytes_ = 0;
};

template <class T>
std::int64_t bytes_of(const std::vector<T>& array) {
  return static_cast<std::int64_t>(array.capacity() * sizeof(T));
}

// What it will hold with more elements: it doubles when it is full. While it does, the old array is there too, but only
// half of the new one is written to yet.
template <class T>
std::int64_t bytes_with(const std::vector<T>& array, std::size_t more = 1) {
  const std::size_t size = array.size() + more;
  const std::size_t capacity = size <= array.capacity() ? array.capacity() : std::max(2 * array.size(), size);
  return static_cast<std::int64_t>(capacity * sizeof(T));
}

}  // namespace regccrf
