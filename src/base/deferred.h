// Deferred: a value that is made when it is first asked for and then kept; safe between threads. What it holds is known
// to the asker alone, so that an early room can keep what a later one makes.
#pragma once

#include <memory>
#include <mutex>

namespace regccrf {

class Deferred {
 public:
  // The value; make() gives it, as a T, the first time. Always asked for with the same T.
  template <class T, class Make>
  const T& get(const Make& make) const {
    std::call_once(once_, [&] { value_ = std::make_shared<const T>(make()); });
    return *static_cast<const T*>(value_.get());
  }

 private:
  mutable std::once_flag once_;
  mutable std::shared_ptr<const void> value_;
};

}  // namespace regccrf
