// Files in /dev/shm that the ranks of a node share: never seen half made, never replaced. Internal
// to shm/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lib/base/handle.hpp"

namespace allrail::shm {

/// How messages name such a file, and what they advise where there is no room for it.
struct SharedFileKind {
  const char* name;    // "node segment"
  const char* advice;  // half a sentence, after "enlarge /dev/shm or "
};

/// A file of that size, mode 0600, that has neither a name nor pages yet. All functions here throw
/// Error{ResourceLimit} where the system refuses, unless they say otherwise.
base::UniqueFd make_shared_file(std::uint64_t bytes, const SharedFileKind& kind);
/// Gives one without pages another size.
void resize_shared_file(int fd, std::uint64_t bytes, const SharedFileKind& kind);
/// Reserves these pages, so that no rank ever meets SIGBUS at one that does not exist.
void reserve_pages(int fd, std::uint64_t offset, std::uint64_t bytes, const SharedFileKind& kind);
/// Its two halves, for who does something between them: a look at what is free, which spares the
/// system from filling up before it refuses, and the pages themselves.
void check_room(int fd, std::uint64_t bytes, const SharedFileKind& kind);
void allocate_pages(int fd, std::uint64_t offset, std::uint64_t bytes, const SharedFileKind& kind);
/// Gives it its name in /dev/shm. Never replaces what is there.
void name_shared_file(int fd, const std::string& name, const SharedFileKind& kind);
/// Takes the name away, if it is still there.
void remove_shared_file(const std::string& name) noexcept;
/// Opens one of this user with that size. Throws Error{Bootstrap} if it is not.
base::UniqueFd open_shared_file(const std::string& name, std::uint64_t bytes,
                                const SharedFileKind& kind);
/// `fd` -1: memory without a file. With an alignment, a power of two above a page, the mapping
/// begins at a multiple of it.
std::shared_ptr<base::Mapping> map_shared(int fd, std::uint64_t bytes, const SharedFileKind& kind,
                                          std::uint64_t alignment_bytes = 0);
/// From `offset` of the file on, which is a whole number of pages.
base::Mapping map_part(int fd, std::uint64_t offset, std::uint64_t bytes,
                       const SharedFileKind& kind);

}  // namespace allrail::shm
