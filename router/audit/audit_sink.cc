#include "router/audit/audit_sink.h"

namespace pdjob::router {

void AuditSink::begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) {
  CopyingSink::begin(head, writer, marks);
  request_id_ = marks.request_id;
  prefill_ = marks.prefill;
  decode_ = marks.decode;
  if (head.status != 200 || prefill_.empty() || decode_.empty() || prefill_ == decode_) {
    copy().give_up();
  }
}

void AuditSink::end() {
  CopyingSink::end();
  auto reply = copy().release();
  if (reply && !reply->is_aborted()) {
    done_({.reply = *std::move(reply),
           .request_id = request_id_,
           .prefill = prefill_,
           .decode = decode_});
  }
}

}  // namespace pdjob::router
