// Preloaded into a launcher, as which a fabric manager would be asked: every rank is told the leaf
// switch that its rail hangs on (PMIX_SWITCH_PEERS), as TEST_SWITCHES has it, a name for each rank.
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <pmix_server.h>

namespace {

std::vector<std::string> switches() {
  std::vector<std::string> names;
  const char* const text = std::getenv("TEST_SWITCHES");
  std::stringstream list(text != nullptr ? text : "");
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

/// Moves `inner` into one entry.
void load(pmix_info_t& entry, const char* key, std::vector<pmix_info_t>& inner) {
  pmix_data_array_t array{};
  array.type = PMIX_INFO;
  array.size = inner.size();
  array.array = inner.data();
  PMIX_INFO_LOAD(&entry, key, &array, PMIX_DATA_ARRAY);
}

/// An array for each device of the host, which has who else hangs on its switch.
void load_switch_peers(pmix_info_t& entry, const std::string& name) {
  std::vector<pmix_info_t> parts(2);
  PMIX_INFO_LOAD(&parts[0], PMIX_DEVICE_ID, "fabric-0", PMIX_STRING);
  PMIX_INFO_LOAD(&parts[1], PMIX_FABRIC_SWITCH, name.c_str(), PMIX_STRING);
  std::vector<pmix_info_t> devices(1);
  load(devices[0], PMIX_SWITCH_PEERS, parts);
  load(entry, PMIX_SWITCH_PEERS, devices);
}

}  // namespace

extern "C" pmix_status_t PMIx_server_register_nspace(const pmix_nspace_t job, int ranks,
                                                     pmix_info_t info[], size_t count,
                                                     pmix_op_cbfunc_t done, void* argument) {
  using Register =
      pmix_status_t (*)(const pmix_nspace_t, int, pmix_info_t[], size_t, pmix_op_cbfunc_t, void*);
  const auto next = reinterpret_cast<Register>(::dlsym(RTLD_NEXT, "PMIx_server_register_nspace"));
  // The library reads what it is given until it calls back: what is added stays for ever.
  const std::vector<std::string> names = switches();
  std::size_t rank = 0;
  for (std::size_t i = 0; i < count && rank < names.size(); ++i) {
    if (!PMIX_CHECK_KEY(&info[i], PMIX_PROC_DATA)) continue;
    pmix_data_array_t& of_rank = *info[i].value.data.darray;
    auto* before = static_cast<pmix_info_t*>(of_rank.array);
    pmix_info_t* more = nullptr;
    PMIX_INFO_CREATE(more, of_rank.size + 1);
    for (std::size_t j = 0; j < of_rank.size; ++j) PMIX_INFO_XFER(&more[j], &before[j]);
    load_switch_peers(more[of_rank.size], names[rank++]);
    PMIX_INFO_FREE(before, of_rank.size);
    of_rank.array = more;
    ++of_rank.size;
  }
  return next(job, ranks, info, count, done, argument);
}
