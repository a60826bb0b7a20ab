// Work on several threads whose results are written in the order in which the work came. A batch is handed over when it
// is full, or when the input stalls, so that a program at the other end of a pipe is not kept waiting.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace regccrf::cli {

void write_all(std::string_view text);  // to standard output, at once

template <class Batch>  // has a std::string `out`
class InOrder {
 public:
  // `work(batch, member)` fills batch.out, on thread `member`. With one thread it runs in put().
  InOrder(int threads, std::function<void(Batch&, int)> work) : work_(std::move(work)) {
    most_ = static_cast<std::size_t>(threads) * 2 + 1;
    for (int member = 0; threads > 1 && member < threads; ++member) {
      threads_.emplace_back([this, member] { run(member); });
    }
  }
  ~InOrder() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

  // An empty batch to fill, whose memory may have served before.
  std::unique_ptr<Batch> take() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return std::make_unique<Batch>();
    std::unique_ptr<Batch> batch = std::move(spare_.back());
    spare_.pop_back();
    return batch;
  }

  // Waits while too much is under way. Rethrows the first error, when everything before it has been written.
  void put(std::unique_ptr<Batch> batch) {
    if (threads_.empty()) {
      const std::exception_ptr error = attempt(*batch, 0);
      write_all(batch->out);
      if (error) std::rethrow_exception(error);
      spare_.push_back(std::move(batch));
      return;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return slots_.size() < most_ || error_; });
    if (error_) std::rethrow_exception(error_);
    slots_.push_back({std::move(batch), State::waiting, {}});
    lock.unlock();
    changed_.notify_all();
  }

  // Waits until everything is written.
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return slots_.empty() || error_; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  enum class State { waiting, running, done };
  struct Slot {
    std::unique_ptr<Batch> batch;
    State state;
    std::exception_ptr error;
  };

  std::exception_ptr attempt(Batch& batch, int member) {
    try {
      batch.out.clear();
      work_(batch, member);
    } catch (...) {
      return std::current_exception();
    }
    return {};
  }

  Slot* waiting() {
    for (Slot& slot : slots_) {
      if (slot.state == State::waiting) return &slot;
    }
    return nullptr;
  }

  void run(int member) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || waiting() != nullptr; });
      if (stop_) return;
      Slot& slot = *waiting();  // stays in place: a deque only loses its front, and that only when it is done
      slot.state = State::running;
      Batch& batch = *slot.batch;
      lock.unlock();
      const std::exception_ptr error = attempt(batch, member);
      lock.lock();
      slot.error = error;
      slot.state = State::done;
      write_done();
      changed_.notify_all();
    }
  }

  // Under the lock: whoever finishes the batch that is due writes it, and those behind it that are done.
  void write_done() {
    while (!slots_.empty() && slots_.front().state == State::done && !error_) {
      try {
        write_all(slots_.front().batch->out);
        error_ = slots_.front().error;
      } catch (...) {
        error_ = std::current_exception();
      }
      spare_.push_back(std::move(slots_.front().batch));
      slots_.pop_front();
    }
  }

  std::function<void(Batch&, int)> work_;
  std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Slot> slots_;
  std::vector<std::unique_ptr<Batch>> spare_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace regccrf::cli
