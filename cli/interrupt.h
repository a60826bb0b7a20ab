// Ctrl-C while training: the first asks it to end, the second ends the program.
#pragma once

namespace regccrf::cli {

class Interrupt {
 public:
  Interrupt();   // from here on SIGINT and SIGTERM ask …
  ~Interrupt();  // … and from here on do what they did
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool asked();
};

}  // namespace regccrf::cli
