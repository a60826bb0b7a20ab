// Ctrl-C or SIGTERM while training: the first asks it to end, the second ends the program.
#pragma once

namespace regccrf::cli {

class Interrupt {
 public:
  Interrupt();   // from here on SIGINT and SIGTERM ask …
  ~Interrupt();  // … and from here on do what they did
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool asked();
  static int status();  // the exit status, as a shell says it of a program that the signal ended: 130 or 143
};

}  // namespace regccrf::cli
