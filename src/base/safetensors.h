// The safetensors layout: eight bytes of header length, a JSON header, raw little-endian tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace regccrf {

struct Tensor {
  std::string dtype;  // "I32", "U8", "F32", "F64"
  std::vector<std::int64_t> shape;
  std::string bytes;  // row-major, little-endian
};

struct Safetensors {
  std::map<std::string, std::string> metadata;
  std::map<std::string, Tensor> tensors;
};

// The same without the bytes, which lie elsewhere.
struct TensorView {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string_view bytes;
};

struct SafetensorsView {
  std::map<std::string, std::string> metadata;
  std::map<std::string, TensorView> tensors;
};

// `path` appears in errors only.
std::string encode_safetensors(const Safetensors& file);
Safetensors decode_safetensors(std::string_view bytes, const std::string& path);

// Large elements come first, so that every tensor lies where its elements are aligned. A file is the header, then the
// tensors.
struct SafetensorsPieces {
  std::string header;
  std::vector<std::string_view> tensors;
};
SafetensorsPieces lay_out_safetensors(const SafetensorsView& file);
SafetensorsView view_safetensors(std::string_view bytes, const std::string& path);

// Whether a file's first bytes can be those of a safetensors file: a plausible header length, then '{'.
bool looks_like_safetensors(std::string_view bytes);

}  // namespace regccrf
