#include "net/zeromq/zeromq_socket.h"

#include <array>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <zmq.h>

#include "common/check.h"

namespace pdjob::net {
namespace {

constexpr int kReadsPerTurn = 256;

Error zmq_error(const std::string& what) {
  return {ErrorCode::kUnavailable, what + ": " + zmq_strerror(zmq_errno())};
}

}  // namespace

ZmqContext::ZmqContext() : context_(zmq_ctx_new()) { PDJOB_CHECK(context_ != nullptr); }
ZmqContext::~ZmqContext() { zmq_ctx_term(context_); }

ZmqSocket::ZmqSocket(EventLoop& loop, ZmqContext& context, int type, Reader& reader)
    : loop_(loop), reader_(reader), socket_(zmq_socket(context.get(), type)) {
  PDJOB_CHECK(socket_ != nullptr, zmq_strerror(zmq_errno()));
  set(ZMQ_LINGER, 0);
}

ZmqSocket::~ZmqSocket() {
  if (fd_ >= 0) {
    loop_.unwatch(fd_);
  }
  if (reading_later_) {
    loop_.cancel(*reading_later_);
  }
  zmq_close(socket_);
}

Status ZmqSocket::bind(const std::string& endpoint) {
  return zmq_bind(socket_, endpoint.c_str()) == 0 ? ok() : Status(zmq_error("bind " + endpoint));
}

Status ZmqSocket::connect(const std::string& endpoint) {
  return zmq_connect(socket_, endpoint.c_str()) == 0 ? ok()
                                                     : Status(zmq_error("connect " + endpoint));
}

Status ZmqSocket::monitor(const std::string& endpoint, int events) {
  return zmq_socket_monitor(socket_, endpoint.c_str(), events) == 0
             ? ok()
             : Status(zmq_error("monitor " + endpoint));
}

std::string ZmqSocket::last_endpoint() {
  std::array<char, 256> text{};
  size_t size = text.size();
  PDJOB_CHECK(zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, text.data(), &size) == 0);
  return text.data();
}

Status ZmqSocket::watch() {
  size_t size = sizeof fd_;
  PDJOB_CHECK(zmq_getsockopt(socket_, ZMQ_FD, &fd_, &size) == 0);
  PDJOB_TRY_STATUS(loop_.watch(fd_, EPOLLIN | EPOLLET, *this));
  read_later();
  return ok();
}

ZmqSocket::Sent ZmqSocket::send(std::span<const std::string> frames) {
  Sent sent = Sent::kQueued;
  for (size_t i = 0; i < frames.size() && sent == Sent::kQueued; ++i) {
    const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
    if (zmq_send(socket_, frames[i].data(), frames[i].size(), ZMQ_DONTWAIT | more) < 0) {
      sent = zmq_errno() == EAGAIN ? Sent::kFull : Sent::kGone;
    }
  }
  if (!reading_) {
    read_later();
  }
  return sent;
}

void ZmqSocket::on_ready(uint32_t /*epoll_events*/) { read_all(); }

void ZmqSocket::set_bytes(int option, const void* value, size_t size) {
  PDJOB_CHECK(zmq_setsockopt(socket_, option, value, size) == 0, option, zmq_strerror(zmq_errno()));
}

bool ZmqSocket::readable() {
  int events = 0;
  size_t size = sizeof events;
  PDJOB_CHECK(zmq_getsockopt(socket_, ZMQ_EVENTS, &events, &size) == 0);
  return (events & ZMQ_POLLIN) != 0;
}

void ZmqSocket::read_later() {
  if (!reading_later_ && readable()) {
    reading_later_ = loop_.call_at(loop_.now(), [this] {
      reading_later_.reset();
      read_all();
    });
  }
}

void ZmqSocket::read_all() {
  reading_ = true;
  for (int reads = 0; reads < kReadsPerTurn && readable() && read_one(); ++reads) {
  }
  reading_ = false;
  read_later();  // Many messages must not starve the loop.
}

bool ZmqSocket::read_one() {
  Frames frames;
  std::string user;
  bool more = true;
  while (more) {
    zmq_msg_t part;
    zmq_msg_init(&part);
    if (zmq_msg_recv(&part, socket_, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&part);
      return false;
    }
    frames.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
    if (const char* name = zmq_msg_gets(&part, "User-Id"); name != nullptr) {
      user = name;
    }
    more = zmq_msg_more(&part) != 0;
    zmq_msg_close(&part);
  }
  reader_.on_frames(std::move(frames), user);
  return true;
}

}  // namespace pdjob::net
