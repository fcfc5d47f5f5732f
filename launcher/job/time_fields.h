// The fields by which records tell times. An Instant means something only with the clock of the
// launcher that wrote it (run/ledger.h). Pure.
#pragma once

#include <cstdint>

#include "common/time.h"
#include "net/control/wire_fields.h"

namespace pdjob::launcher {

inline void duration(net::WireWriter& writer, Duration duration) {
  writer.value(int64_t{duration.count()});
}
inline void duration(net::WireReader& reader, Duration& duration) {
  int64_t count = 0;
  reader.value(count);
  duration = Duration(count);
}

inline void instant(net::WireWriter& writer, Instant when) {
  duration(writer, when.time_since_epoch());
}
inline void instant(net::WireReader& reader, Instant& when) {
  Duration since{};
  duration(reader, since);
  when = Instant(since);
}

}  // namespace pdjob::launcher
