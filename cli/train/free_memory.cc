#include "cli/train/free_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace regccrf::cli {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr double kKilobyte = 1024;

// The number behind `name` in files such as /proc/meminfo, in bytes.
double field(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  double number = 0;
  while (file >> word) {
    if (word == name && file >> number) return number * kKilobyte;
  }
  return -1;
}

double number_in(const char* path) {  // "max" is none
  std::ifstream file(path);
  double number = 0;
  return file >> number ? number : -1;
}

double of_machine() {
  const double available = field("/proc/meminfo", "MemAvailable:");
  return available < 0 ? kNoLimit : available;
}

double of_group() {
  const double most = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  return most < 0 || used < 0 ? kNoLimit : most - used;
}

double of_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return static_cast<double>(limit.rlim_cur) - std::max(0.0, field("/proc/self/status", "VmSize:"));
}

}  // namespace

double free_memory() { return std::max(0.0, std::min({of_machine(), of_group(), of_address_space()})); }

}  // namespace regccrf::cli
