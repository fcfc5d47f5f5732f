// Shelf: records of one kind, in memory, by id and by tenant. A record of another tenant is not
// there. Value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pdjob::batch {

enum class ListOrder { kNewestFirst, kOldestFirst };

template <class Record>
class Shelf {
 public:
  void put(const Record& record) {
    by_id_[record.id] = {record.tenant, record.number};
    by_tenant_[record.tenant][record.number] = record;
  }
  void erase(const std::string& id) {
    if (const auto place = by_id_.extract(id)) {
      auto& records = by_tenant_.at(place.mapped().first);
      records.erase(place.mapped().second);
      if (records.empty()) {
        by_tenant_.erase(place.mapped().first);
      }
    }
  }
  // Null: there is none of that tenant. Valid until the next put() or erase().
  const Record* find(const std::string& id, std::string_view tenant) const {
    const Record* const record = find(id);
    return record != nullptr && record->tenant == tenant ? record : nullptr;
  }
  const Record* find(const std::string& id) const {
    const auto place = by_id_.find(id);
    return place == by_id_.end() ? nullptr
                                 : &by_tenant_.at(place->second.first).at(place->second.second);
  }

  // At most `limit` records behind that of the id `after`, from one end or the other.
  struct Page {
    std::vector<Record> records;
    bool has_more = false;
  };
  Page page(const std::string& tenant, const Record* after, size_t limit, ListOrder order,
            const auto& wanted) const {
    Page page;
    const auto records = by_tenant_.find(tenant);
    if (records == by_tenant_.end()) {
      return page;
    }
    const auto take = [&](auto from, auto end) {
      for (; from != end && !page.has_more; ++from) {
        if (wanted(from->second)) {
          page.has_more = page.records.size() == limit;
          page.has_more ? void() : page.records.push_back(from->second);
        }
      }
    };
    const std::map<int64_t, Record>& all = records->second;
    if (order == ListOrder::kOldestFirst) {
      take(after == nullptr ? all.begin() : all.upper_bound(after->number), all.end());
    } else {
      take(after == nullptr ? all.rbegin()
                            : std::make_reverse_iterator(all.lower_bound(after->number)),
           all.rend());
    }
    return page;
  }

  size_t size() const { return by_id_.size(); }
  size_t count(const std::string& tenant) const {
    const auto records = by_tenant_.find(tenant);
    return records == by_tenant_.end() ? 0 : records->second.size();
  }
  void for_each(const auto& call) const {
    for (const auto& [tenant, records] : by_tenant_) {
      for (const auto& [number, record] : records) {
        call(record);
      }
    }
  }
  void for_each_of(const std::string& tenant, const auto& call) const {
    if (const auto records = by_tenant_.find(tenant); records != by_tenant_.end()) {
      for (const auto& [number, record] : records->second) {
        call(record);
      }
    }
  }

 private:
  std::map<std::string, std::map<int64_t, Record>> by_tenant_;  // By number.
  std::unordered_map<std::string, std::pair<std::string, int64_t>> by_id_;
};

}  // namespace pdjob::batch
