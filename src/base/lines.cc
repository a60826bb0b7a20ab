// A buffer that is filled from a descriptor, through zlib where the first bytes are gzip's, and that lines are cut
// from. Nothing is read that is not needed, so that a reader at the end of a pipe answers when a line has come.
#include "base/lines.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/utf8.h"
#include "regccrf/error.h"

namespace regccrf {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 18;        // bytes asked for at a time
constexpr std::size_t kParagraph = std::size_t{1} << 16;    // the most that is peeked at
constexpr std::size_t kLongestLine = std::size_t{1} << 26;  // bytes; a device such as /dev/zero never ends

// Bytes as they come from the system.
class Source {
 public:
  explicit Source(const std::string& path) : path_(path == "-" ? "standard input" : path) {
    file_ = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) throw Error("[read] cannot open " + path + ": " + std::strerror(errno));
    struct stat facts {};
    if (::fstat(file_, &facts) == 0 && S_ISDIR(facts.st_mode)) {
      close();
      throw Error("[read] " + path + " is a folder; a file is needed");
    }
  }
  ~Source() { close(); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  std::size_t read(char* to, std::size_t most) {  // 0 at the end
    for (;;) {
      const ssize_t got = ::read(file_, to, most);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno != EINTR) throw Error("[read] cannot read " + path_ + ": " + std::strerror(errno));
    }
  }
  bool would_wait() const {
    pollfd poll{file_, POLLIN, 0};
    return ::poll(&poll, 1, 0) == 0;
  }
  const std::string& path() const { return path_; }

 private:
  void close() {
    if (file_ > STDIN_FILENO) ::close(file_);
    file_ = -1;
  }
  std::string path_;
  int file_;
};

// The bytes of a gzip file's members, one after another.
class Inflater {
 public:
  Inflater(Source& source, std::string_view begun) : source_(source), raw_(begun.begin(), begun.end()) {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw Error("[read] " + source.path() + ": zlib cannot start");
    stream_.next_in = reinterpret_cast<Bytef*>(raw_.data());
    stream_.avail_in = static_cast<uInt>(raw_.size());
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  std::size_t read(char* to, std::size_t most) {
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(most);
    while (stream_.avail_out == most) {
      if (stream_.avail_in == 0 && !refill()) {
        if (!between_) throw Error("[read] " + source_.path() + ": the gzip file is truncated");
        return 0;
      }
      if (between_ && !begin_member()) return 0;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_STREAM_END) {
        between_ = true;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        throw Error("[read] " + source_.path() +
                    ": the gzip file is damaged: " + (stream_.msg ? stream_.msg : "bad data"));
      }
    }
    return most - stream_.avail_out;
  }
  bool would_wait() const { return stream_.avail_in == 0 && source_.would_wait(); }

 private:
  bool refill() {
    raw_.resize(kPiece);
    stream_.next_in = reinterpret_cast<Bytef*>(raw_.data());
    stream_.avail_in = static_cast<uInt>(source_.read(raw_.data(), raw_.size()));
    return stream_.avail_in > 0;
  }
  // Behind a member: another one, or padding with zeros up to the end.
  bool begin_member() {
    while (stream_.avail_in > 0 || refill()) {
      if (*stream_.next_in != 0) {
        inflateReset(&stream_);
        between_ = false;
        return true;
      }
      ++stream_.next_in;
      --stream_.avail_in;
    }
    return false;
  }

  Source& source_;
  std::vector<char> raw_;
  z_stream stream_{};
  bool between_ = false;  // members
};

// Up to the first blank line behind one that is not; 0 where there is none.
std::size_t paragraph(std::string_view text) {
  bool begun = false;
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) {
    const bool blank = is_blank(text.substr(at, end - at));
    if (blank && begun) return end;
    begun |= !blank;
  }
  return 0;
}

}  // namespace

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

struct LineReader::Impl {
  explicit Impl(const std::string& path) : source(path) {}

  // More bytes behind those in the buffer; false at the end.
  bool fill() {
    if (!started) return start();
    if (ended) return false;
    if (begin > 0 && (begin == end || end + kPiece > buffer.size())) {
      std::memmove(buffer.data(), buffer.data() + begin, end - begin);
      end -= begin;
      begin = 0;
    }
    if (end - begin > kLongestLine) {
      throw Error("[read] " + source.path() + ", line " + std::to_string(number + 1) +
                  ": a line of more than 64 MiB; is this a text file?");
    }
    if (end + kPiece > buffer.size()) buffer.resize(std::max(2 * buffer.size(), end + kPiece));
    const std::size_t got =
        inflater ? inflater->read(buffer.data() + end, kPiece) : source.read(buffer.data() + end, kPiece);
    end += got;
    ended = got == 0;
    return !ended;
  }

  // The first piece. Looks at its first bytes: gzip, UTF-8's mark, or an encoding that is not read.
  bool start() {
    started = true;
    buffer.resize(kPiece);
    while (end < 3) {
      const std::size_t got = source.read(buffer.data() + end, kPiece - end);
      if (got == 0) break;
      end += got;
    }
    const auto starts_with = [&](std::string_view mark) { return rest().substr(0, mark.size()) == mark; };
    if (starts_with("\x1f\x8b")) {
      inflater = std::make_unique<Inflater>(source, rest());
      begin = end = 0;
      while (end < 3) {
        const std::size_t got = inflater->read(buffer.data() + end, kPiece - end);
        if (got == 0) break;
        end += got;
      }
    }
    if (starts_with("\xff\xfe") || starts_with("\xfe\xff")) {
      throw Error("[read] " + source.path() + " is UTF-16, and UTF-8 is needed; convert it: iconv -f UTF-16 -t UTF-8");
    }
    ended = end == 0;
    if (starts_with(kByteOrderMark)) begin = kByteOrderMark.size();
    return !ended;
  }

  std::string_view rest() const { return {buffer.data() + begin, end - begin}; }

  Source source;
  std::unique_ptr<Inflater> inflater;
  std::vector<char> buffer;
  std::size_t begin = 0, end = 0;  // what of the buffer is still to come
  bool started = false, ended = false;
  std::int64_t number = 0;
};

LineReader::LineReader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
LineReader::~LineReader() = default;

std::int64_t LineReader::number() const { return impl_->number; }

bool LineReader::next(Line& line) {
  Impl& in = *impl_;
  std::size_t searched = 0;
  for (;;) {
    const std::string_view rest = in.rest();
    const std::size_t at = rest.find('\n', searched);
    if (at == std::string_view::npos) {
      searched = rest.size();
      if (in.fill()) continue;
      if (in.rest().empty()) return false;
      line = {in.rest(), {}};
      in.begin = in.end;
    } else {
      const bool carriage = at > 0 && rest[at - 1] == '\r';
      line = {rest.substr(0, at - carriage), rest.substr(at - carriage, 1 + carriage)};
      in.begin += at + 1;
    }
    ++in.number;
    return true;
  }
}

bool LineReader::next_text(Line& line) {
  if (!next(line)) return false;
  const std::size_t end = text_end(line.text);
  if (end == line.text.size()) return true;
  const std::string& path = impl_->source.path();
  const std::string place =
      "[read] " + path + ", line " + std::to_string(number()) + ", byte " + std::to_string(end + 1);
  if (line.text[end] == 0) {
    throw Error(place +
                ": a NUL byte, and text has none; is this a text file? UTF-16 is converted by iconv -f UTF-16 "
                "-t UTF-8, NULs are removed by tr -d '\\000'");
  }
  char byte[8];
  std::snprintf(byte, sizeof byte, "0x%02X", static_cast<unsigned>(static_cast<unsigned char>(line.text[end])));
  throw Error(place + ": " + byte + " is not UTF-8; if the text is Latin-1, convert it: iconv -f latin1 -t utf8");
}

std::string_view LineReader::peek_paragraph() {
  Impl& in = *impl_;
  for (;;) {
    const std::size_t length = paragraph(in.rest());
    if (length > 0) return in.rest().substr(0, length);
    const std::size_t whole_lines = in.rest().rfind('\n');
    if (in.rest().size() >= kParagraph && whole_lines != std::string_view::npos)
      return in.rest().substr(0, whole_lines);
    if (!in.fill()) return in.rest();
  }
}

bool LineReader::would_wait() {
  Impl& in = *impl_;
  while (!in.ended && in.rest().size() < kPiece && paragraph(in.rest()) == 0) {
    if (in.inflater ? in.inflater->would_wait() : in.source.would_wait()) return true;
    in.fill();
  }
  return false;
}

}  // namespace regccrf
