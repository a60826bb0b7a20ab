// What every fuzz target shares: small limits, and the rule that whatever the bytes are, only Error may be thrown.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "regccrf/error.h"
#include "regccrf/language.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace regccrf::fuzz {

inline Limits small_limits() {
  Limits limits;
  limits.states = 2'000;
  limits.arcs = 50'000;
  limits.seconds = 0.2;
  return limits;
}

inline std::string text_of(const std::uint8_t* data, std::size_t size) {
  return size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(data), size);
}

// Bytes as a file without a place: readers of streams take a path.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : file_(::memfd_create("fuzz", 0)) {
    for (std::size_t done = 0; done < size;) {
      const ssize_t written = ::write(file_, data + done, size - done);
      if (written <= 0) std::abort();
      done += static_cast<std::size_t>(written);
    }
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

// Ends the run: the fuzzer and the replay both keep the input that led here.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  std::abort();
}

// Runs `work`; an Error is a good answer, anything else escapes and is a finding.
template <class Work>
void only_errors(Work work) {
  try {
    work();
  } catch (const Error& error) {
    require(*error.what() != '\0', "an Error has a message");
  }
}

}  // namespace regccrf::fuzz
