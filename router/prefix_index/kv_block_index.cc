#include "router/prefix_index/kv_block_index.h"

#include "common/limits.h"
#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::router {
void KvBlockIndex::stored(WorkerId worker, const openai::KvBlocksStored& event) {
  Engine& engine = engines_[worker];
  if (engine.block_size == 0 && event.block_size % kTokenBlockTokens == 0) {
    engine.block_size = event.block_size;
    engine.group = event.group;
  }
  if (event.block_size != engine.block_size || event.group != engine.group) {
    return;
  }
  if (!event.adapter.empty() && adapters_.size() < limits::kAdaptersMax) {
    adapters_.insert(event.adapter);
  }
  if (!event.adapter.empty() && !adapters_.contains(event.adapter)) {
    return;
  }
  uint32_t parent = kNone;
  if (event.parent) {
    parent = find_by_engines_hash(worker, *event.parent);
    if (parent == kNone) {
      return;
    }
  }
  const uint64_t before = parent == kNone ? name_hash(event.adapter) : nodes_[parent].hash;
  const std::vector<uint64_t> hashes = token_blocks(event.tokens, before);
  const size_t stride = event.block_size / kTokenBlockTokens;
  for (size_t block = 0; block < event.hashes.size(); ++block) {
    const uint64_t hash = hashes[(block + 1) * stride - 1];
    uint32_t node = find_by_engines_hash(worker, event.hashes[block]);
    if (node != kNone && nodes_[node].hash != hash) {
      erase(engine, node);  // Its meaning has changed.
      return;
    }
    if (node == kNone) {
      node = add(worker, engine, parent, key_of(event.hashes[block], worker), hash);
    }
    if (node == kNone) {
      return;
    }
    parent = node;
  }
}

void KvBlockIndex::removed(WorkerId worker, const openai::KvBlocksRemoved& event) {
  const auto engine = engines_.find(worker);
  if (engine == engines_.end() || event.group != engine->second.group) {
    return;
  }
  for (const uint64_t hash : event.hashes) {
    if (const uint32_t node = find_by_engines_hash(worker, hash); node != kNone) {
      erase(engine->second, node);
    }
  }
}

void KvBlockIndex::clear(WorkerId worker) {
  const auto engine = engines_.find(worker);
  while (engine != engines_.end() && engine->second.first_root != kNone) {
    erase(engine->second, engine->second.first_root);
  }
}

void KvBlockIndex::forget(WorkerId worker) {
  clear(worker);
  engines_.erase(worker);
}

KvBlockIndex::Matched KvBlockIndex::matched(std::span<const uint64_t> prompt,
                                            WorkerId worker) const {
  const auto engine = engines_.find(worker);
  if (engine == engines_.end() || engine->second.block_size == 0) {
    return {.token_blocks = 0, .all = prompt.empty()};
  }
  const size_t stride = engine->second.block_size / kTokenBlockTokens;
  const size_t whole = prompt.size() / stride;  // In the engine's block size.
  const size_t known = leading_blocks(whole, [&](size_t block) {
    return by_hash_.contains(key_of(prompt[(block + 1) * stride - 1], worker));
  });
  return {.token_blocks = known * stride, .all = known == whole};
}

uint64_t KvBlockIndex::root_of(const std::string& model, const std::string& tenant) const {
  if (const std::string own = openai::tenant_adapter(tenant); adapters_.contains(own)) {
    return name_hash(own);
  }
  return adapters_.contains(model) ? name_hash(model) : 0;
}

uint32_t KvBlockIndex::held(WorkerId worker) const {
  const auto engine = engines_.find(worker);
  return engine == engines_.end() ? 0 : engine->second.held;
}

uint32_t KvBlockIndex::find_by_engines_hash(WorkerId worker, uint64_t hash) const {
  const auto found = by_engines_hash_.find(key_of(hash, worker));
  return found == by_engines_hash_.end() ? kNone : found->second;
}

uint32_t KvBlockIndex::add(WorkerId worker, Engine& engine, uint32_t parent, uint64_t engines_key,
                           uint64_t hash) {
  const uint64_t key = key_of(hash, worker);
  if (size() == blocks_max_ || by_hash_.contains(key)) {
    return kNone;
  }
  uint32_t node = 0;
  if (free_.empty()) {
    node = static_cast<uint32_t>(nodes_.size());
    nodes_.emplace_back();
  } else {
    node = free_.back();
    free_.pop_back();
  }
  uint32_t& head = head_of(engine, parent);
  nodes_[node] = {.engines_key = engines_key,
                  .key = key,
                  .hash = hash,
                  .worker = worker,
                  .parent = parent,
                  .next_sibling = head};
  if (head != kNone) {
    nodes_[head].prior_sibling = node;
  }
  head = node;
  by_engines_hash_[engines_key] = node;
  by_hash_[key] = node;
  engine.held += 1;
  return node;
}

// Not recursive: a prompt can be thousands of blocks deep.
void KvBlockIndex::erase(Engine& engine, uint32_t top) {
  uint32_t at = top;
  while (true) {
    while (nodes_[at].first_child != kNone) {
      at = nodes_[at].first_child;
    }
    const Node& node = nodes_[at];
    const uint32_t parent = node.parent;
    (node.prior_sibling == kNone ? head_of(engine, parent)
                                 : nodes_[node.prior_sibling].next_sibling) = node.next_sibling;
    if (node.next_sibling != kNone) {
      nodes_[node.next_sibling].prior_sibling = node.prior_sibling;
    }
    by_engines_hash_.erase(node.engines_key);
    by_hash_.erase(node.key);
    free_.push_back(at);
    engine.held -= 1;
    if (at == top) {
      return;
    }
    at = parent;
  }
}

}  // namespace pdjob::router
