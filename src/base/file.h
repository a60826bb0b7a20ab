// Whole files. They are written beside their place and renamed into it, so a reader sees the old file or the new one,
// never a part.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace regccrf {

std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view bytes);                    // whole or not at all
void write_file(const std::string& path, std::span<const std::string_view> pieces);  // one after another

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
