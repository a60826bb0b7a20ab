#include "cli/train/progress_line.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <iostream>

namespace regccrf::cli {

std::string duration(double seconds) {
  char text[64];
  if (seconds < 100) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else if (seconds < 3600) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  }
  return text;
}

ProgressLine::ProgressLine(const TrainOptions& options, std::string score, bool quiet)
    : options_(options), score_(std::move(score)), quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { finish(); }

void ProgressLine::finish() {
  if (open_) std::cerr << "\n";
  open_ = false;
}

// Until the last iteration that is allowed, or until the relative improvement over a period, which falls about
// geometrically, has come down to the tolerance.
double ProgressLine::seconds_left(const Progress& now) const {
  const auto period = static_cast<std::size_t>(options_.period);
  if (history_.size() < 2) return -1;
  const Progress& first = history_.front();
  const double each = (now.seconds - first.seconds) / (now.iteration - first.iteration);
  double left = options_.max_iterations > 0 ? options_.max_iterations - now.iteration : -1;
  if (history_.size() > 2 * period) {
    const auto improvement = [&](std::size_t back) {
      const std::size_t at = history_.size() - 1 - back;
      return history_[at - period].objective / history_[at].objective - 1;
    };
    const double before = improvement(period), here = improvement(0);
    if (options_.tolerance > 0 && here > options_.tolerance && before > here) {
      const double more = static_cast<double>(period) * std::log(here / options_.tolerance) / std::log(before / here);
      left = left < 0 ? more : std::min(left, more);
    }
  }
  return left < 0 ? -1 : left * each;
}

void ProgressLine::show(const Progress& p) {
  if (quiet_) return;
  history_.push_back(p);
  const std::size_t most = 2 * static_cast<std::size_t>(options_.period) + 1;
  if (history_.size() > most) history_.erase(history_.begin());
  char text[256];
  std::snprintf(text, sizeof text, "iteration %4d  objective %.6g  gradient %.3g", p.iteration, p.objective,
                p.gradient_norm);
  std::string line = text;
  if (p.development) {
    std::snprintf(text, sizeof text, "  development %s %.2f%s", score_.c_str(), *p.development,
                  p.best ? " (best)" : "");
    line += text;
  }
  if (p.phase == Phase::base) line += "  base alone";
  if (p.phase == Phase::rules) {
    std::snprintf(text, sizeof text, "  rules, gap %.1g", p.largest_gap);
    line += text;
    if (p.uncertified > 0) line += ", " + std::to_string(p.uncertified) + " not certified";
  }
  line += "  " + duration(p.seconds);
  const double left = seconds_left(p);
  if (left >= 0) line += ", about " + duration(left) + " left";
  if (terminal_) {
    std::cerr << "\r\033[K" << line << std::flush;
    open_ = true;
  } else {
    plain(p, line);
  }
}

// The first ten, then one in ten, or one a second where iterations are slow.
void ProgressLine::plain(const Progress& p, const std::string& text) {
  if (p.iteration > 10 && p.iteration % 10 != 0 && p.seconds - shown_ < 1) return;
  shown_ = p.seconds;
  std::cerr << text << std::endl;
}

}  // namespace regccrf::cli
