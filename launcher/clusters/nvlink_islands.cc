#include "launcher/clusters/nvlink_islands.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/parse_number.h"
#include "launcher/placement/topology.h"

namespace pdjob::launcher {
namespace {

constexpr size_t kTableGpusMax = 256;

using Cells = std::vector<std::string>;

// The words of a line, without the escape codes that underline the head for a terminal.
Cells cells_of(std::string_view line) {
  Cells cells(1);
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\033') {
      i = std::min(line.find('m', i), line.size());
    } else if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
      cells.back() += line[i];
    } else if (!cells.back().empty()) {
      cells.emplace_back();
    }
  }
  if (cells.back().empty()) {
    cells.pop_back();
  }
  return cells;
}

std::optional<size_t> number_after(std::string_view cell, std::string_view word) {
  return cell.starts_with(word) ? parse_number<size_t>(cell.substr(word.size())) : std::nullopt;
}

// Whether the line begins the table: "GPU0 GPU1 NIC0 CPU Affinity ...". `gpus`: how many.
bool is_head(const Cells& cells, size_t& gpus) {
  size_t count = 0;
  while (count < cells.size() && number_after(cells[count], "GPU") == count) {
    ++count;
  }
  const bool head = count > 0 && count <= kTableGpusMax && count < cells.size() &&
                    !number_after(cells[count], "GPU") && cells[count] != "X" &&
                    (cells[count] == "CPU" || number_after(cells[count], "NIC") == 0U ||
                     cells[count].starts_with("mlx"));
  gpus = head ? count : gpus;
  return head;
}

void join(std::vector<uint32_t>& islands, size_t one, size_t other) {
  const auto [to, from] = std::minmax(islands[one], islands[other]);
  std::ranges::replace(islands, uint32_t{from}, uint32_t{to});
}

// From 0 on. `firsts`: of each GPU, the first one of its island.
std::vector<uint32_t> numbered(const std::vector<uint32_t>& firsts) {
  std::map<uint32_t, uint32_t> numbers;
  std::vector<uint32_t> islands;
  for (const uint32_t first : firsts) {
    const auto next = static_cast<uint32_t>(numbers.size());
    islands.push_back(std::ranges::count(firsts, first) > 1
                          ? numbers.try_emplace(first, next).first->second
                          : kUnknownGroup);
  }
  return islands;
}

}  // namespace

std::vector<uint32_t> nvlink_islands(std::string_view table) {
  size_t gpus = 0;
  size_t rows = 0;
  std::vector<uint32_t> islands;
  while (!table.empty() && (gpus == 0 || rows < gpus)) {
    const size_t end = std::min(table.find('\n'), table.size());
    const Cells cells = cells_of(table.substr(0, end));
    table.remove_prefix(std::min(end + 1, table.size()));
    if (gpus == 0) {
      if (is_head(cells, gpus)) {
        for (uint32_t gpu = 0; gpu < gpus; ++gpu) {
          islands.push_back(gpu);
        }
      }
      continue;
    }
    if (cells.size() <= gpus || number_after(cells[0], "GPU") != rows) {
      return {};
    }
    for (size_t gpu = 0; gpu < gpus; ++gpu) {
      if (number_after(cells[1 + gpu], "NV")) {
        join(islands, rows, gpu);
      }
    }
    ++rows;
  }
  if (rows < gpus) {
    return {};
  }
  return numbered(islands);
}

}  // namespace pdjob::launcher
