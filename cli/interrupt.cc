#include "cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace regccrf::cli {

namespace {

std::atomic<int> noted{0};                             // the signal, or 0
static_assert(std::atomic<int>::is_always_lock_free);  // a handler may write no other

void note(int signal) { noted = signal; }

}  // namespace

Interrupt::Interrupt() {
  noted = 0;
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

bool Interrupt::asked() { return noted != 0; }

int Interrupt::status() { return 128 + noted; }

}  // namespace regccrf::cli
