#include "base/command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "regccrf/error.h"

extern char** environ;

namespace regccrf {
namespace {

// A temporary file that goes when this goes.
struct Temporary {
  std::string path = (std::filesystem::temp_directory_path() / "regccrf.XXXXXX").string();
  Temporary() {
    const int file = ::mkstemp(path.data());
    if (file < 0) throw Error("[write] cannot make a temporary file " + path);
    ::close(file);
  }
  ~Temporary() { ::unlink(path.c_str()); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
};

bool succeeds(std::vector<std::string> command) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  int status = 0;
  if (::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) return false;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

void write_converted(const std::string& path, const std::string& text, const std::vector<std::string>& command,
                     const std::string& hint) {
  const Temporary source, result;
  write_file(source.path, text);
  std::vector<std::string> whole = command;
  whole.push_back(result.path);
  whole.push_back(source.path);
  if (!succeeds(whole)) throw Error("[write] " + path + ": " + hint);
  write_file(path, read_file(result.path));
}

}  // namespace regccrf
