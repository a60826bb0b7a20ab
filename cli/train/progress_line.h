// What training says while it works, on standard error: one line that is rewritten in a terminal, plain lines
// elsewhere.
#pragma once

#include <string>
#include <vector>

#include "regccrf/trainer.h"

namespace regccrf::cli {

std::string duration(double seconds);  // as people say it: 12.3 s, 4 min, 1.5 h

class ProgressLine {
 public:
  // `score`: what the development score is called.
  ProgressLine(const TrainOptions& options, std::string score, bool quiet);
  ~ProgressLine();

  void show(const Progress& progress);
  void finish();  // the line stays

 private:
  double seconds_left(const Progress& progress) const;  // < 0: who knows
  void plain(const Progress& progress, const std::string& text);

  const TrainOptions& options_;
  std::string score_;
  bool quiet_, terminal_;
  bool open_ = false;  // a line without its end
  std::vector<Progress> history_;
  double shown_ = -1e9;  // when the last line was, in seconds
};

}  // namespace regccrf::cli
