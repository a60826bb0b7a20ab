// Reading and writing whole files (see file.h).
#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "regccrf/error.h"

namespace regccrf {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 30;  // bytes; a device such as /dev/zero never ends

// A rename lasts through a power failure once its folder is written.
void sync_folder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  const int file = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  ::fsync(file);
  ::close(file);
}

}  // namespace

std::string read_file(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) throw Error("[read] " + path + " is a folder; a file is needed");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("[read] cannot open " + path + ": " + std::strerror(errno));
  std::string bytes;
  const auto size = std::filesystem::file_size(path, code);
  if (!code && size <= kLargestFile) bytes.reserve(size);
  std::vector<char> piece(1 << 16);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0) {
    bytes.append(piece.data(), static_cast<std::size_t>(in.gcount()));
    if (bytes.size() > kLargestFile)
      throw Error("[read] " + path + " is larger than 1 GiB, more than a language or a constraint can be");
  }
  if (in.bad()) throw Error("[read] cannot read " + path + ": " + std::strerror(errno));
  return bytes;
}

void write_file(const std::string& path, std::string_view bytes) { write_file(path, std::span(&bytes, 1)); }

void write_file(const std::string& path, std::span<const std::string_view> pieces) {
  namespace fs = std::filesystem;
  std::error_code code;
  const bool special = fs::exists(path, code) && !fs::is_regular_file(path, code);  // /dev/stdout, a pipe
  const std::string target = special ? path : path + ".part" + std::to_string(::getpid());
  const int file = ::open(target.c_str(), O_WRONLY | O_CREAT | (special ? 0 : O_TRUNC), 0666);
  const auto fail = [&](const char* what) {
    const std::string reason = std::strerror(errno);
    if (file >= 0) ::close(file);
    if (!special && file >= 0) ::unlink(target.c_str());
    throw Error("[write] cannot " + std::string(what) + " " + path + ": " + reason);
  };
  if (file < 0) fail("create");
  for (std::string_view bytes : pieces) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail("write");
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  if (!special && ::fsync(file) != 0) fail("write");
  const bool in_place = ::close(file) == 0 && (special || ::rename(target.c_str(), path.c_str()) == 0);
  if (!in_place) {
    const std::string reason = std::strerror(errno);
    if (!special) ::unlink(target.c_str());
    throw Error("[write] cannot put " + path + " in place: " + reason);
  }
  if (!special) sync_folder(path);
}

MappedFile::MappedFile(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw Error("[read] cannot open " + path + ": " + std::strerror(errno));
  struct stat facts {};
  const bool regular = ::fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* const at = regular && size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  ::close(file);
  if (at != MAP_FAILED) {
    bytes_ = {static_cast<const char*>(at), size};
    return;
  }
  read_ = read_file(path);
  bytes_ = read_;
}

MappedFile::~MappedFile() {
  if (read_.empty() && !bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

}  // namespace regccrf
