// Reading and writing whole files (see file.h).
#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
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

// What a symbolic link leads to, whether or not it is there yet: the link stays, its target is written.
std::string followed(const std::string& path) {
  constexpr int deepest = 40;  // as the system has it; more is a circle, which open() words
  std::filesystem::path at = path;
  std::error_code code;
  for (int i = 0; i < deepest && std::filesystem::is_symlink(at, code); ++i) {
    const std::filesystem::path next = std::filesystem::read_symlink(at, code);
    if (code) break;
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  return at.string();
}

bool is_special(const std::string& path) {  // /dev/stdout, a pipe
  std::error_code code;
  return std::filesystem::exists(path, code) && !std::filesystem::is_regular_file(path, code);
}

constexpr std::string_view kPart = ".part";  // behind it, the number of the process that writes

std::string part_of(const std::string& path) { return path + std::string(kPart) + std::to_string(::getpid()); }

// The process that wrote this part of `name`, or 0 where the file is something else.
pid_t writer_of(std::string_view file, std::string_view name) {
  if (!file.starts_with(name) || !file.substr(name.size()).starts_with(kPart)) return 0;
  const std::string_view digits = file.substr(name.size() + kPart.size());
  pid_t process = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), process);
  return error == std::errc() && end == digits.data() + digits.size() && process > 0 ? process : 0;
}

// Parts that killed processes left behind.
void remove_stale_parts(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  const std::string name = fs::path(path).filename().string();
  std::vector<fs::path> stale;
  for (fs::directory_iterator at(fs::absolute(path).parent_path(), code), end; !code && at != end; at.increment(code)) {
    const pid_t writer = writer_of(at->path().filename().string(), name);
    if (writer > 0 && ::kill(writer, 0) != 0 && errno == ESRCH) stale.push_back(at->path());
  }
  for (const fs::path& part : stale) fs::remove(part, code);
}

}  // namespace

void check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  const std::string target = followed(path);
  const fs::path folder = fs::absolute(target).parent_path();
  if (fs::is_directory(target, code)) throw Error("[write] " + path + " is a folder; a file's name is needed");
  if (!fs::is_directory(folder, code))
    throw Error("[write] there is no folder " + folder.string() + " to write " + path + " in; make it first");
  const auto fail = [&] {
    throw Error("[write] cannot write " + path + ": " + std::strerror(errno) + "; name a place that can be written");
  };
  if (is_special(target)) {
    if (::access(target.c_str(), W_OK) != 0) fail();
    return;
  }
  const std::string probe =
      target + ".try" + std::to_string(::getpid());  // rights alone do not tell: /proc, full disks
  const int file = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) fail();
  ::close(file);
  ::unlink(probe.c_str());
}

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
  const std::string place = followed(path);
  const bool special = is_special(place);
  if (!special) remove_stale_parts(place);
  const std::string target = special ? place : part_of(place);
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
  const bool in_place = ::close(file) == 0 && (special || ::rename(target.c_str(), place.c_str()) == 0);
  if (!in_place) {
    const std::string reason = std::strerror(errno);
    if (!special) ::unlink(target.c_str());
    throw Error("[write] cannot put " + path + " in place: " + reason);
  }
  if (!special) sync_folder(place);
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
