#include "launcher/pool/pool_ledger.h"

#include <span>
#include <string_view>

#include "common/limits.h"
#include "launcher/agents/agent_message.h"
#include "launcher/job/time_fields.h"
#include "launcher/pool/pool_fields.h"
#include "launcher/run/sealed_bytes.h"
#include "net/control/wire_fields.h"

namespace pdjob::launcher {

namespace {

constexpr SealKind kSeal = {.magic = 0x706a6470,  // "pdjp" as bytes on disk.
                            .version = 3,
                            .purpose = "pdjob pool",
                            .name = "the pool's ledger"};

template <class Codec>
void order_fields(Codec& codec, typename Codec::template Ref<PoolJobOrder> order) {
  codec.text(order.name, kPoolTextBytesMax);
  codec.text(order.text, limits::kConfigBytesMax);
  codec.text(order.source, kPoolTextBytesMax);
  codec.text(order.queue, kPoolTextBytesMax);
  codec.value(order.priority);
  codec.value(order.batch);
  codec.text(order.listen, kPoolTextBytesMax);
  codec.value(order.door);
  duration(codec, order.keep);
  codec.text(order.workers, kPoolTextBytesMax);
}

template <class Codec>
void process_fields(Codec& codec, typename Codec::template Ref<PoolProcess> process) {
  codec.text(process.node, kPoolTextBytesMax);
  codec.value(process.incarnation.value);
  codec.value(process.ending);
}

template <class Codec>
void share_fields(Codec& codec, typename Codec::template Ref<HeldShare> held) {
  codec.value(held.number);
  codec.text(held.share.node, kPoolTextBytesMax);
  codec.value(held.share.cores);
  codec.value(held.share.memory_bytes);
  text_list(codec, held.share.gpus, kPoolFacts);
  part_map(codec, held.share.gpu_parts, kPoolFacts);
  label_map(codec, held.share.labels, kPoolFacts);
  process_fields(codec, held.agent);
}

template <class Codec>
void job_fields(Codec& codec, typename Codec::template Ref<PoolJob> job) {
  codec.value(job.id);
  order_fields(codec, job.order);
  codec.word(job.state, PoolJobState::kQueued, PoolJobState::kEnded);
  codec.value(job.comes_back);
  codec.text(job.why, kPoolTextBytesMax);
  codec.value(job.port);
  process_fields(codec, job.launcher);
  codec.list(job.shares, kPoolSharesMax, [](Codec& each, auto& held) { share_fields(each, held); });
  codec.value(job.shares_made);
  codec.value(job.start.value);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<PoolLedger> ledger) {
  codec.text(ledger.build, kPoolTextBytesMax);
  codec.value(ledger.keeper);
  codec.text(ledger.root, kPoolTextBytesMax);
  codec.value(ledger.ids);
  codec.value(ledger.incarnations);
  codec.list(ledger.jobs, kPoolJobsMax + kPoolJobsKept,
             [](Codec& each, auto& job) { job_fields(each, job); });
  codec.list(ledger.quotas, kPoolQueuesMax, [](Codec& each, auto& quota) {
    each.text(quota.queue, kPoolTextBytesMax);
    each.value(quota.cores);
    each.value(quota.gpus);
  });
}

}  // namespace

std::string encode(const PoolLedger& ledger) {
  std::string bytes;
  net::WireWriter writer(bytes);
  fields(writer, ledger);
  return seal(kSeal, bytes);
}

Result<PoolLedger> decode_pool_ledger(const std::string& bytes) {
  PDJOB_TRY(const std::string_view body, unseal(kSeal, bytes));
  net::WireReader reader(std::as_bytes(std::span(body.data(), body.size())));
  PoolLedger ledger;
  fields(reader, ledger);
  if (reader.failed() || !reader.at_end()) {
    return damaged(kSeal);
  }
  return ledger;
}

}  // namespace pdjob::launcher
