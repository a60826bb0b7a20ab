// Arena: scratch memory that a thread keeps from one sequence to the next. Takes are aligned for any vector and not
// initialised; rewind() gives everything back at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace regccrf {

class Arena {
 public:
  template <class T>
  T* take(std::size_t count) {
    return static_cast<T*>(bytes(count * sizeof(T)));
  }
  template <class T>
  T* zeros(std::size_t count) {
    T* memory = take<T>(count);
    std::fill_n(memory, count, T{});
    return memory;
  }
  // After a rewind one block serves all that was taken so far; blocks past `most` bytes are not kept.
  void rewind(std::size_t most = std::size_t{1} << 29) {
    if (blocks_.size() > 1) {
      std::size_t total = 0;
      for (const Block& block : blocks_) total += block.size;
      blocks_.clear();
      if (total <= most) add(total);
    } else if (!blocks_.empty() && blocks_[0].size > most) {
      blocks_.clear();
    }
    used_ = 0;
  }

  // Gives back what was taken since the mark was set, as long as no new block was needed.
  struct Mark {
    std::size_t block, used;
  };
  Mark mark() const { return {blocks_.size(), used_}; }
  void back_to(Mark mark) {
    if (mark.block == blocks_.size()) used_ = mark.used;
  }

 private:
  static constexpr std::size_t kAlign = 128;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kAlign}); }
  };
  struct Block {
    std::unique_ptr<std::byte[], Free> memory;
    std::size_t size;
  };

  void add(std::size_t size) {
    auto* memory = static_cast<std::byte*>(::operator new[](size, std::align_val_t{kAlign}));
    blocks_.push_back({std::unique_ptr<std::byte[], Free>(memory), size});
    used_ = 0;
  }
  void* bytes(std::size_t size) {
    size = (size + kAlign - 1) / kAlign * kAlign;
    if (blocks_.empty() || used_ + size > blocks_.back().size) add(std::max<std::size_t>(size, std::size_t{1} << 16));
    void* memory = blocks_.back().memory.get() + used_;
    used_ += size;
    return memory;
  }

  std::vector<Block> blocks_;
  std::size_t used_ = 0;  // of the last block
};

}  // namespace regccrf
