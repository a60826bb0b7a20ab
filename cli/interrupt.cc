#include "cli/interrupt.h"

#include <csignal>

namespace regccrf::cli {

namespace {

volatile std::sig_atomic_t signals = 0;

void note(int) { signals = signals + 1; }

}  // namespace

Interrupt::Interrupt() {
  signals = 0;
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // the second time it kills
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool Interrupt::asked() { return signals > 0; }

}  // namespace regccrf::cli
