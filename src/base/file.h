// Whole files. They are written beside their place (NAME.partPROCESS) and renamed into it, so a reader sees the old
// file or the new one, never a part. A symbolic link stays, and its target is written; parts whose process is gone are
// removed.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace regccrf {

std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view bytes);                    // whole or not at all
void write_file(const std::string& path, std::span<const std::string_view> pieces);  // one after another

// Error if write_file() could not write there, so that long work whose result goes there is not begun.
void check_writable(const std::string& path);

// A file's bytes, mapped into memory; what is not looked at is not read.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return bytes_; }

 private:
  std::string read_;  // where it cannot be mapped: a pipe
  std::string_view bytes_;
};

}  // namespace regccrf
