// Stopped: thrown within an iteration when TrainOptions::stop says so; train() catches it.
#pragma once

#include <functional>

namespace regccrf {

struct Stopped {};

using Stop = std::function<bool()>;

inline void stop_if_asked(const Stop& stop) {
  if (stop && stop()) throw Stopped();
}

}  // namespace regccrf
