// What an Extractor is inside: one class for each kind, in template.cc, words.cc and extract.cc.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "regccrf/extract.h"

namespace regccrf {

struct Extractor::Impl {
  virtual ~Impl() = default;
  virtual nlohmann::json json() const = 0;  // an object with "kind"
  virtual Format format() const { return Format::columns; }
  virtual int columns() const = 0;
  virtual bool uses(int column) const = 0;
  virtual bool transitions() const { return true; }
  virtual Weighs weighs(std::string_view) const { return Weighs::label; }
  virtual std::string summary() const = 0;
  virtual void extract(const Sentence& sentence, AttributeSink& sink) const = 0;
};

std::shared_ptr<const Extractor::Impl> template_extractor(const std::string& text, const std::string& origin);
std::shared_ptr<const Extractor::Impl> word_extractor(const WordFeatures& features);
// From what json() gave; `embeddings` replaces the path that it holds.
std::shared_ptr<const Extractor::Impl> word_extractor(const nlohmann::json& json, const std::string& embeddings);

}  // namespace regccrf
