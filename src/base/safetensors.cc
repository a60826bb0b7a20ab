// Encoding and decoding of safetensors.
#include "base/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "regccrf/error.h"

namespace regccrf {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error("[load] " + path + ": " + why);
}

std::int64_t bytes_per_element(const std::string& dtype) {
  if (dtype == "U8") return 1;
  if (dtype == "I32" || dtype == "F32") return 4;
  if (dtype == "I64" || dtype == "F64") return 8;
  return 0;
}

std::uint64_t read_length(std::string_view bytes) {
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = (length << 8) | static_cast<unsigned char>(bytes[i]);
  return length;
}

// JSON numbers may be 1e999, which no integer type holds.
template <class T>
std::vector<T> integers(const Json& list, const std::string& path) {
  std::vector<T> result;
  for (const Json& item : list) {
    if (!item.is_number_integer()) refuse(path, "damaged: a shape or an offset is not a whole number");
    result.push_back(item.get<T>());
  }
  return result;
}

}  // namespace

SafetensorsPieces lay_out_safetensors(const SafetensorsView& file) {
  std::vector<std::pair<std::string, const TensorView*>> order;
  for (const auto& [name, tensor] : file.tensors) order.emplace_back(name, &tensor);
  std::stable_sort(order.begin(), order.end(), [](const auto& x, const auto& y) {
    return bytes_per_element(x.second->dtype) > bytes_per_element(y.second->dtype);
  });
  Json header = {{"__metadata__", file.metadata}};
  SafetensorsPieces pieces;
  std::size_t at = 0;
  for (const auto& [name, tensor] : order) {
    const std::size_t end = at + tensor->bytes.size();
    header[name] = {{"dtype", tensor->dtype}, {"shape", tensor->shape}, {"data_offsets", {at, end}}};
    pieces.tensors.push_back(tensor->bytes);
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  for (int i = 0; i < 8; ++i) pieces.header.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xff));
  pieces.header += text;
  return pieces;
}

std::string encode_safetensors(const Safetensors& file) {
  SafetensorsView view{file.metadata, {}};
  for (const auto& [name, tensor] : file.tensors) view.tensors[name] = {tensor.dtype, tensor.shape, tensor.bytes};
  SafetensorsPieces pieces = lay_out_safetensors(view);
  for (std::string_view tensor : pieces.tensors) pieces.header += tensor;
  return std::move(pieces.header);
}

bool looks_like_safetensors(std::string_view bytes) {
  return bytes.size() >= 10 && bytes[8] == '{' && read_length(bytes) < (std::uint64_t{1} << 32);
}

Safetensors decode_safetensors(std::string_view bytes, const std::string& path) {
  SafetensorsView view = view_safetensors(bytes, path);
  Safetensors file{std::move(view.metadata), {}};
  for (auto& [name, tensor] : view.tensors) {
    file.tensors[name] = {std::move(tensor.dtype), std::move(tensor.shape), std::string(tensor.bytes)};
  }
  return file;
}

SafetensorsView view_safetensors(std::string_view bytes, const std::string& path) {
  if (bytes.size() < 8)
    refuse(path, "the file is truncated: it has " + std::to_string(bytes.size()) + " bytes, its header alone needs 8");
  const std::uint64_t length = read_length(bytes);
  if (length > bytes.size() - 8) {
    refuse(path, "not a safetensors file, and so neither a model nor a constraint; or truncated");
  }
  const std::string_view data = bytes.substr(8 + length);
  SafetensorsView file;
  std::uint64_t used = 0;
  try {
    const Json header = Json::parse(bytes.substr(8, length));
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        file.metadata = value.get<std::map<std::string, std::string>>();
        continue;
      }
      TensorView tensor;
      tensor.dtype = value.at("dtype").get<std::string>();
      tensor.shape = integers<std::int64_t>(value.at("shape"), path);
      const auto offsets = integers<std::uint64_t>(value.at("data_offsets"), path);
      if (offsets.size() != 2 || offsets[0] > offsets[1]) refuse(path, "tensor '" + name + "' has impossible offsets");
      if (offsets[1] > data.size()) {
        refuse(path, "the file is truncated: tensor '" + name + "' ends at byte " + std::to_string(offsets[1]) +
                         " of " + std::to_string(data.size()));
      }
      std::int64_t size = bytes_per_element(tensor.dtype);
      for (std::int64_t extent : tensor.shape) {
        if (extent < 0 || __builtin_mul_overflow(size, extent, &size))
          refuse(path, "tensor '" + name + "' has an impossible shape");
      }
      if (size != static_cast<std::int64_t>(offsets[1] - offsets[0])) {
        refuse(path, "tensor '" + name + "': its shape and its bytes do not agree");
      }
      used += offsets[1] - offsets[0];
      if (used > data.size()) refuse(path, "damaged: its tensors overlap");
      tensor.bytes = data.substr(offsets[0], offsets[1] - offsets[0]);
      file.tensors.emplace(name, std::move(tensor));
    }
  } catch (const Json::exception& error) {
    refuse(path, std::string("not a safetensors file, or damaged: ") + error.what());
  }
  return file;
}

}  // namespace regccrf
