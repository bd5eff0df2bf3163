// Every rank gives four numbers and receives those of all ranks.
#include <iostream>
#include <numeric>
#include <vector>

#include <allrail/allrail.hpp>

int main() {
  try {
    allrail::Communicator comm = allrail::Communicator::world();
    std::vector<int> mine(4);
    std::iota(mine.begin(), mine.end(), 10 * comm.rank());
    std::vector<int> all(mine.size() * static_cast<std::size_t>(comm.size()));
    comm.allgather(mine, all);
    if (comm.rank() == 0) {
      for (const int number : all) std::cout << number << ' ';
      std::cout << '\n';
    }
  } catch (const allrail::Error& error) {
    std::cerr << "allgather failed: " << error.what() << '\n';
    return 1;
  }
}
