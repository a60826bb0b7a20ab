// Runs a fuzz target without a fuzzer: every file of its corpus, then a fixed-seed series of mutations of them for a
// few seconds, so that the ordinary tests have a short run. Usage: replay CORPUS-FOLDER [MUTATIONS]
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz.h"

namespace {

using Generator = std::mt19937_64;

std::vector<std::string> read_corpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

std::size_t below(std::size_t n, Generator& random) { return n == 0 ? 0 : random() % n; }

// One edit: a byte replaced, a piece removed, a piece doubled, a piece of another file put in, or the end cut off.
void mutate(std::string& bytes, const std::vector<std::string>& corpus, Generator& random) {
  const std::size_t at = below(bytes.size() + 1, random);
  const std::size_t length = std::min(bytes.size() - at, 1 + below(16, random));
  switch (random() % 5) {
    case 0:
      if (at < bytes.size()) bytes[at] = static_cast<char>(random());
      break;
    case 1:
      bytes.erase(at, length);
      break;
    case 2:
      bytes.insert(at, bytes.substr(at, length));
      break;
    case 3: {
      const std::string& other = corpus[below(corpus.size(), random)];
      bytes.insert(at, other.substr(below(other.size(), random), 1 + below(32, random)));
      break;
    }
    case 4:
      if (random() % 8 == 0) bytes.resize(at);
      break;
  }
}

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: " << argv[0] << " CORPUS-FOLDER [MUTATIONS]\n";
    return 2;
  }
  const std::vector<std::string> corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::cerr << argv[1] << " holds no files\n";
    return 2;
  }
  for (const std::string& bytes : corpus) run(bytes);
  const std::size_t mutations = argc > 2 ? std::stoul(argv[2]) : 2'000;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  Generator random(1);
  std::size_t done = 0;
  for (; done < mutations && std::chrono::steady_clock::now() < end; ++done) {
    std::string bytes = corpus[below(corpus.size(), random)];
    for (std::size_t edits = 1 + below(4, random); edits > 0; --edits) mutate(bytes, corpus, random);
    run(bytes);
  }
  std::cout << corpus.size() << " files and " << done << " mutations\n";
  return 0;
}
