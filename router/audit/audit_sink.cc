#include "router/audit/audit_sink.h"

namespace pdjob::router {

void AuditSink::begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) {
  copy_.begin(head, writer);
  request_id_ = marks.request_id;
  prefill_ = marks.prefill;
  decode_ = marks.decode;
  if (head.status != 200 || prefill_.empty() || decode_.empty() || prefill_ == decode_) {
    copy_.give_up();
  }
  next_->begin(head, writer, marks);
}

bool AuditSink::write(std::string_view raw) {
  copy_.take(raw);
  return next_->write(raw);
}

void AuditSink::change_writer() {
  copy_.give_up();
  next_->change_writer();
}

void AuditSink::end() {
  next_->end();
  if (auto reply = copy_.release()) {
    done_({.reply = *std::move(reply),
           .request_id = request_id_,
           .prefill = prefill_,
           .decode = decode_});
  }
}

}  // namespace pdjob::router
