// A link that sends nothing. It lets tests ask a transport for its decisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvtransfer/link/transport.h"

namespace pdjob::kvtransfer {

class NoStream final : public LinkStream {
 public:
  void send(LinkMessage /*message*/) override {}
  void begin_payload(uint64_t /*bytes*/) override {}
  size_t write_payload(std::span<const iovec> /*pieces*/) override { return 0; }
  void wake() override {}
  void rows_came(TransferId /*id*/) override {}
  void fail(Error /*reason*/) override {}
};

}  // namespace pdjob::kvtransfer
