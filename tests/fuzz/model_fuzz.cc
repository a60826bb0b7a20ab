// Bytes as a model file, as they are and with a checksum that fits. What loads must be sound, and saving it must give
// the same.
#include "fuzz.h"
#include "regccrf/model.h"
#include "tagger/model_file.h"

namespace regccrf::fuzz {
namespace {

void use(const std::string& bytes) {
  const Model model = Model::from_bytes(bytes);
  require(Model::from_bytes(model.to_bytes()).to_bytes() == model.to_bytes(), "a model survives saving and loading");
  Dataset data;
  for (std::int32_t i = 0; i < model.attributes(); ++i) {
    require(!model.find_attribute(model.attribute(i)) || *model.find_attribute(model.attribute(i)) < model.attributes(),
            "found numbers exist");
    data.attribute.push_back(i);
  }
  model.find_attribute("not there");
  data.item.push_back(static_cast<std::int64_t>(data.attribute.size()));
  data.position.push_back(1);
  std::vector<double> h(static_cast<std::size_t>(model.labels().size()));
  emissions<double>(model, data, 0, 1, h);
}

std::string with_checksum(const std::string& bytes) {
  SafetensorsView file = view_safetensors(bytes, "model");
  file.metadata["checksum"] = model_checksum(file);
  SafetensorsPieces pieces = lay_out_safetensors(file);
  for (std::string_view tensor : pieces.tensors) pieces.header += tensor;
  return pieces.header;
}

}  // namespace
}  // namespace regccrf::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regccrf::fuzz;
  only_errors([&] { use(text_of(data, size)); });
  only_errors([&] { use(with_checksum(text_of(data, size))); });
  return 0;
}
