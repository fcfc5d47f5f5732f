// A relay that plays the network between a receiver and a sender. It hears every byte, and may
// change one. It may cut any connection at any byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/files/fd.h"
#include "kvtransfer/kv_endpoint.h"

namespace pdjob::kvtransfer {

class Relay {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;
  // The faults of each connection, counted in bytes from the sender.
  struct Faults {
    uint64_t cut_after = kNever;
    uint64_t flip_at = kNever;  // Flips one bit of this byte.
  };
  Relay(const EndpointAddress& sender, Faults faults);
  explicit Relay(const EndpointAddress& sender) : Relay(sender, Faults()) {}
  ~Relay();

  // The sender's address, by way of this relay.
  const EndpointAddress& address() const { return address_; }
  void heal();
  // Closes the connection with number `index`, in order of arrival.
  void cut(size_t index);
  size_t connections();
  // Returns how many bytes the sender sent by that connection.
  uint64_t carried(size_t index);
  // Returns whether the text passed in either direction, on any connection.
  bool heard(const std::string& text);

 private:
  struct Connection {
    Fd receiver, sender;
    std::string to_sender, to_receiver;
  };
  void run();
  void accept();
  // Returns false if the connection has ended.
  bool pass_on(const Fd& from, const Fd& to, std::string& heard, bool faulty);

  EndpointAddress address_;
  uint16_t sender_port_;
  std::mutex mutex_;
  Faults faults_;
  std::vector<Connection> connections_;
  bool stopping_ = false;
  Fd listener_;
  std::thread thread_;  // Last: it uses the members above.
};

}  // namespace pdjob::kvtransfer
