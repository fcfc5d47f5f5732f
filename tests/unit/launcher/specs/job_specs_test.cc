#include "launcher/specs/job_specs.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using net::Role;

JobConfig job(const std::string& yaml) {
  auto config = parse_job_config("/f/job.yaml", "name: demo\n" + yaml,
                                 {.home = "/h", .models_elsewhere = true});
  PDJOB_CHECK(config.has_value(), config.error().message);
  return std::move(*config);
}

std::string spec(const std::string& yaml, Role role, const std::string& model) {
  return specs_of(job(yaml)).work.at({role, model});
}

const std::string kFake = "served_name: tiny\nengine: {kind: fake}\n";

TEST(JobSpecs, HoldWhatDiffersFromTheDefaultsAndNothingOfOtherProcesses) {
  const std::string yaml = kFake +
                           "router: {queue_timeout: 7s}\ndecode: {workers: 3, engine: "
                           "{sequences: 5}}\nscaling: {workers_max: 9}\n";
  EXPECT_EQ(spec(yaml, Role::kDecode, "tiny"),
            "served_name: tiny\nengine:\n  kind: fake\n  sequences: 5\n"
            "drain_timeout: 30s\nstart_timeout: 5min\n");
  EXPECT_EQ(spec(yaml, Role::kRouter, ""),
            "router:\n  queue_timeout: 7s\nmodels: [\"tiny\"]\n"
            "file_bytes_max: 209715200\n");
}

TEST(JobSpecs, AreReadAsTheyWereWritten) {
  const std::string yaml = R"(
model: ./weights/a.gguf
served_name: "odd \" name"
engine: {kv_type: f16, threads: 3, sequences: 4, tokens_per_sequence: 512, batch_tokens: 64, shared_kv: false}
prefill: {workers: 2, chunk_tokens: 32, prefix_cache: false}
decode: {workers: 2, local_chunk_tokens: 8, requests_queued: 7}
gpu: {device: 3, cuda_library: /opt/cudart.so}
kvtransfer: {transport: tcp, lease: 5s, tcp: {streams: 3, encrypt: true}, nccl: {ctas_max: 7}}
router:
  prefill_policy: prefix_aware
  decode_policy: power_of_two
  retry_budget: 0.35
  allowed_origins: ["https://a.example", "null"]
  tls: {certificate: /c.pem, key: /k.pem}
  kv_events: {port: 5557, topic: "kv@"}
  cache: {bytes_max: 1000000, ttl: 90min}
  tracing: {endpoint: "http://collector:4318", ratio: 0.25}
  tenants:
    "Team: A, \"x\"": {key_sha256: 0000000000000000000000000000000000000000000000000000000000000001, weight: 4}
    b: {key_sha256: 0000000000000000000000000000000000000000000000000000000000000002, tokens_per_minute: 5}
batch_api: {dir: /batches, rows_max: 17, keep: 36h}
)";
  for (const auto& [key, text] : specs_of(job(yaml)).work) {
    const auto values = spec_values(key.first, text);
    ASSERT_TRUE(values) << values.error().message << text;
  }
  const auto worker = read_worker_spec("w", spec(yaml, Role::kPrefill, "odd \" name"));
  ASSERT_TRUE(worker) << worker.error().message;
  EXPECT_EQ(worker->model, "/f/weights/a.gguf");
  EXPECT_EQ(worker->engine.served_name, "odd \" name");
  EXPECT_EQ(worker->engine.kv_type, engine::KvType::kF16);
  EXPECT_FALSE(worker->engine.lend_threads) << "because threads is set";
  EXPECT_EQ(worker->engine.cuda.device, 3);
  EXPECT_EQ(worker->kvtransfer.nccl.cuda.library, "/opt/cudart.so");
  EXPECT_EQ(worker->kvtransfer.tcp.encrypt, kvtransfer::Encrypt::kAlways);
  EXPECT_EQ(worker->prefill.chunk_tokens, 32);
  EXPECT_EQ(worker->decode.local_chunk_tokens, 8);
  EXPECT_TRUE(worker->changes_role);
  const auto router = read_router_spec("r", spec(yaml, Role::kRouter, ""));
  ASSERT_TRUE(router) << router.error().message;
  EXPECT_EQ(router->router.retry_budget, 0.35);
  EXPECT_EQ(router->router.tls.key, "/k.pem");
  ASSERT_EQ(router->router.tenants.size(), 2);
  EXPECT_EQ(router->router.tenants.front().name, "Team: A, \"x\"");
  EXPECT_EQ(router->router.tenants.front().weight, 4);
  EXPECT_EQ(router->router.tenants.back().tokens_per_minute, 5);
  const auto batch = read_batch_spec("b", spec(yaml, Role::kBatch, ""));
  ASSERT_TRUE(batch) << batch.error().message;
  EXPECT_EQ(batch->batch_api.rows_max, 17);
  EXPECT_EQ(batch->batch_api.keep, std::chrono::hours(36));
}

TEST(JobSpecs, AStoreHasItsMemoryAndHowKvMoves) {
  const std::string yaml = kFake + "kv_store: {memory: 1048576}\nkvtransfer: {lease: 7s}\n";
  const auto store = read_store_spec("s", spec(yaml, Role::kStore, ""));
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->kv_store.memory_bytes, 1048576U);
  EXPECT_EQ(store->kvtransfer.lease, std::chrono::seconds(7));
  EXPECT_EQ(store->drain_timeout, std::chrono::seconds(30));
  EXPECT_TRUE(spec_values(Role::kStore, spec(yaml, Role::kStore, "")));
  EXPECT_EQ(specs_of(job(kFake)).work.count({Role::kStore, ""}), 0U) << "the job has none";
  EXPECT_EQ(changes_text(
                changes(specs_of(job(yaml)), specs_of(job(kFake + "kv_store: {memory: 2097152}\n"
                                                                  "kvtransfer: {lease: 7s}\n")))),
            "store: kv_store.memory from 1048576 to 2097152");
}

TEST(JobSpecs, AStoreTakesNoPortsOfEngines) {
  EXPECT_EQ(engine_ports(specs_of(job(kFake + "kv_store: {memory: 1048576}\n"))), 0U);
}

TEST(JobSpecs, OfAnEngineOfAnotherMakeHaveItsRecipeAndItsModelAsWritten) {
  const std::string yaml = R"(
model: Qwen/Qwen3-0.6B
engine:
  kind: command
  args: ["--max-model-len", "64"]
  env: ["A=b c"]
  ports: 22000-22010
  recipe: {command: [serve, "{model}"], ready: /health, metrics: {path: /metrics, running: run, progress: [n]}}
)";
  const auto worker = read_worker_spec("w", spec(yaml, Role::kDecode, "Qwen/Qwen3-0.6B"));
  ASSERT_TRUE(worker) << worker.error().message;
  EXPECT_EQ(worker->model, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(worker->engine.foreign.make, "command");
  EXPECT_EQ(worker->engine.foreign.ports.last, 22010);
  EXPECT_EQ(worker->engine.foreign.recipe.command, (std::vector<std::string>{"serve", "{model}"}));
  EXPECT_EQ(worker->engine.foreign.recipe.metrics.running, "run");
  const std::string path = "model: ./m\nserved_name: m\nengine: {kind: vllm}\n";
  EXPECT_EQ(read_worker_spec("w", spec(path, Role::kDecode, "m"))->model, "/f/./m");
  const std::string home = "model: ~/m\nserved_name: m\nengine: {kind: vllm}\n";
  EXPECT_EQ(read_worker_spec("w", spec(home, Role::kDecode, "m"))->model, "~/m");
}

TEST(JobSpecs, OfAnEngineOfAnotherMakeHaveOneFingerprintForBothRolesWhichAnyOptionChanges) {
  const auto of = [](const std::string& yaml, Role role) {
    const std::string job = "model: a/b\nserved_name: m\nengine: {kind: vllm}\n" + yaml;
    return read_worker_spec("w", spec(job, role, "m"))->fingerprint;
  };
  const std::string one = of("", Role::kPrefill);
  EXPECT_EQ(one.size(), 16);
  EXPECT_EQ(of("", Role::kDecode), one);
  EXPECT_EQ(of("decode: {workers: 3}\n", Role::kDecode), one);
  const std::string args = "decode: {engine: {args: [\"--dtype\", \"half\"]}}\n";
  EXPECT_NE(of(args, Role::kDecode), one);
  EXPECT_EQ(of(args, Role::kPrefill), of(args, Role::kDecode));
  EXPECT_EQ(read_worker_spec("w", spec(kFake, Role::kDecode, "tiny"))->fingerprint, "")
      << "it makes its own";
}

TEST(JobSpecs, OfARouterTellWhichKeysItTakesOverWhileItRuns) {
  const std::string before = spec(kFake, Role::kRouter, "");
  const std::string limits =
      spec(kFake + "router: {queue_timeout: 7s, attempts: 2}\n", Role::kRouter, "");
  EXPECT_EQ(with_live_keys(before, limits), limits);
  const std::string address =
      spec(kFake + "router: {queue_timeout: 7s, listen: \"127.0.0.1:9\"}\n", Role::kRouter, "");
  EXPECT_EQ(with_live_keys(before, address),
            spec(kFake + "router: {queue_timeout: 7s}\n", Role::kRouter, ""));
}

TEST(JobSpecs, ChangesAreNamedByWhoseTheyAreAndWithTheirDefaults) {
  const auto between = [](const std::string& from, const std::string& to) {
    return changes_text(changes(specs_of(job(kFake + from)), specs_of(job(kFake + to))));
  };
  EXPECT_EQ(between("", "# a remark\nprefill: {}\n"), "");
  const std::string apart = "prefill: {engine: {sequences: 4}}\n";
  EXPECT_EQ(between(apart, apart + "decode: {engine: {sequences: 16}}\n"),
            "decode: engine.sequences from 8 to 16");
  EXPECT_EQ(between("router: {queue_timeout: 7s}\n", "launcher: {admin: \"127.0.0.1:7\"}\n"),
            "launcher: launcher.admin from nothing to 127.0.0.1:7; "
            "router: router.queue_timeout from 7s to 30s");
  EXPECT_EQ(between("", "decode: {workers: 2, labels: {zone: a}}\n"),
            "launcher: decode.workers from nothing to 2; "
            "launcher: decode.labels.zone from nothing to a");
  EXPECT_EQ(between("", "mode: rollout\nrollout: {weights_dir: /w}\n").substr(0, 38),
            "launcher: mode from nothing to rollout");
  EXPECT_EQ(
      between("clusters: {x: {kind: local, cpus: 1}}\n", "clusters: {x: {kind: local, cpus: 2}}\n"),
      "launcher: clusters.x.cpus from 1 to 2");
}

TEST(JobSpecs, AreShownAsJson) {
  const JobSpecs specs = specs_of(job(kFake + "decode: {engine: {sequences: 5}}\n"));
  EXPECT_NE(
      specs_json(specs).find(
          R"({"role":"decode","model":"tiny","digest":")" + specs.digest(Role::kDecode, "tiny") +
          R"(","work":{"served_name": "tiny", "engine": {"kind": "fake", "sequences": 5}, )"
          R"("drain_timeout": "30s", "start_timeout": "5min"}})"),
      std::string::npos)
      << specs_json(specs);
}

TEST(JobSpecs, DigestsTellSpecsApart) {
  const std::string one = spec(kFake, Role::kDecode, "tiny");
  EXPECT_EQ(spec_digest(one), spec_digest(spec(kFake + "# a remark\n", Role::kDecode, "tiny")));
  EXPECT_EQ(one, spec(kFake + "decode: {workers: 7}\n", Role::kDecode, "tiny"));
  EXPECT_NE(spec_digest(one),
            spec_digest(spec(kFake + "decode: {requests_queued: 9}\n", Role::kDecode, "tiny")));
  EXPECT_EQ(spec_digest(one).size(), 16);
}

TEST(JobSpecs, BytesThatAreNoSpecAreRefusedByName) {
  EXPECT_EQ(read_worker_spec("decode-0", "engine: {sequence: 3}").error().message.substr(0, 21),
            "the spec of decode-0:");
}

}  // namespace
}  // namespace pdjob::launcher
