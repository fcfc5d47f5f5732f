// FileStore: the bytes of files on disk, and the folders of batches. It names both by ids that the
// API made, never by a client's words. Calls block. Of one helper thread.
//
//   DIR/files/ID         a file
//   DIR/files/ID.part    an upload under way
//   DIR/batches/ID/      a batch: its input, ledger, part files
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "batch/store/disk.h"
#include "common/result.h"

namespace pdjob::batch {

class FileStore {
 public:
  // Makes what is missing of the folder. The new folders survive a power cut.
  static Result<FileStore> open(const std::string& dir);

  // An upload, until finish() or discard().
  Status begin(const std::string& id);
  Status append(const std::string& id, std::string_view bytes);
  // Afterwards the file survives a power cut.
  Status finish(const std::string& id);
  void discard(const std::string& id);

  // At most `count` bytes. kNotFound: the file is not there.
  Result<std::string> read(const std::string& id, uint64_t offset, size_t count) const;
  void remove(const std::string& id);

  // Makes the batch's folder, with a link to the file as its input: the file may be deleted.
  // Afterwards both survive a power cut.
  Status make_batch(const std::string& batch, const std::string& input);
  void remove_batch(const std::string& batch);
  // Whether it has a file, an upload or a batch.
  bool holds_any() const;
  // Removes files, uploads and batches that are not in `files` or `batches`: a death cut them off.
  // Anything whose name is no id of the API stays: somebody else put it there.
  void keep_only(const std::set<std::string>& files, const std::set<std::string>& batches);
  // The bytes in the folder of each batch. Its input counts only once its file is deleted: until
  // then both are the same bytes.
  std::map<std::string, uint64_t> batch_bytes() const;
  // What the file system has left for this process; all there is if it does not tell.
  uint64_t free_bytes() const;

  std::string file_path(const std::string& id) const { return dir_ + "/files/" + id; }
  std::string batch_path(const std::string& id) const { return dir_ + "/batches/" + id; }

 private:
  explicit FileStore(std::string dir) : dir_(std::move(dir)), disk_(real_disk(Readers::kOwner)) {}
  std::string files_folder() const { return dir_ + "/files"; }
  std::string batches_folder() const { return dir_ + "/batches"; }
  std::string part_path(const std::string& id) const { return file_path(id) + ".part"; }

  std::string dir_;
  std::unique_ptr<Disk> disk_;
  std::map<std::string, std::unique_ptr<AppendFile>> uploads_;
};

}  // namespace pdjob::batch
