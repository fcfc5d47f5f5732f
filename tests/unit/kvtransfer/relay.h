// A relay between a receiver and a sender, as a network between them is: it hears every byte, may
// change one, and may cut any connection at any byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kvtransfer/kv_endpoint.h"
#include "kvtransfer/unique_fd.h"

namespace pdjob::kvtransfer {

class Relay {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;
  // What happens to each connection, counted in bytes from the sender.
  struct Faults {
    uint64_t cut_after = kNever;
    uint64_t flip_at = kNever;  // One bit of this byte.
  };
  Relay(const EndpointAddress& sender, Faults faults);
  explicit Relay(const EndpointAddress& sender) : Relay(sender, Faults()) {}
  ~Relay();

  // The sender's, by way of this relay.
  const EndpointAddress& address() const { return address_; }
  void heal();
  // Closes the connection that came as number `index`.
  void cut(size_t index);
  size_t connections();
  // Bytes that the sender sent by that connection.
  uint64_t carried(size_t index);
  // Whether the text passed by, in either direction, on any connection.
  bool heard(const std::string& text);

 private:
  struct Connection {
    UniqueFd receiver, sender;
    std::string to_sender, to_receiver;
  };
  void run();
  void accept();
  // False: the connection has ended.
  bool pass_on(const UniqueFd& from, const UniqueFd& to, std::string& heard, bool faulty);

  EndpointAddress address_;
  uint16_t sender_port_;
  std::mutex mutex_;
  Faults faults_;
  std::vector<Connection> connections_;
  bool stopping_ = false;
  UniqueFd listener_;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace pdjob::kvtransfer
