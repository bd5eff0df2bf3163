// An operator new that fails when a test wants it to.
#pragma once

#include <cstdint>

namespace allrail::testing {

/// From then on allocation `number` of this thread fails, the next being 1, and those behind it if
/// `and_later`.
void fail_allocation(std::uint64_t number, bool and_later) noexcept;
/// None fails any more. True if one did.
bool stop_failing() noexcept;

}  // namespace allrail::testing
