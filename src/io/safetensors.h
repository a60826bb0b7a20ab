// The safetensors layout: eight bytes of header length, a JSON header, raw little-endian tensors. Files are written beside
// their place and renamed into it, so a reader sees the old file or the new one, never a part.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace regccrf {

struct Tensor {
  std::string dtype;                // "I32", "U8", "F32", "F64"
  std::vector<std::int64_t> shape;
  std::string bytes;                // row-major, little-endian
};

struct Safetensors {
  std::map<std::string, std::string> metadata;
  std::map<std::string, Tensor> tensors;
};

// `path` appears in errors only.
std::string encode_safetensors(const Safetensors& file);
Safetensors decode_safetensors(std::string_view bytes, const std::string& path);

// Whether a file's first bytes can be those of a safetensors file: a plausible header length, then '{'.
bool looks_like_safetensors(std::string_view bytes);

std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view bytes);  // whole or not at all

}  // namespace regccrf
