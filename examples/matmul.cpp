// Multiplies two dense matrices on a grid of ranks (SUMMA, van de Geijn and Watts 1997): every rank
// has a block of each matrix. For one panel after the other the ranks that have it broadcast their
// part of it, of the left matrix along the rows of the grid and of the right one along the columns,
// and everybody adds the product of the two. Rows and columns are communicators of their own.
//   allrail-run -n 8 --nodes 4 matmul --size 1000 --algorithm auto,binomial,smp-chain
#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <allrail/allrail.hpp>

namespace {

using allrail::Communicator;
using Numbers = std::vector<double>;

/// What falls to part `index` of `parts` of a side of the matrix.
struct Range {
  std::size_t begin = 0, end = 0;
  Range(std::size_t size, int index, int parts)
      : begin(size * static_cast<std::size_t>(index) / static_cast<std::size_t>(parts)),
        end(size * static_cast<std::size_t>(index + 1) / static_cast<std::size_t>(parts)) {}
  std::size_t size() const { return end - begin; }
};

/// Small whole numbers: sums of their products are exact in any order.
double element(std::size_t row, std::size_t column, std::size_t which) {
  return static_cast<double>((row * 7 + column * 13 + which * 5) % 17) - 8.0;
}

Numbers make_block(const Range& rows, const Range& columns, std::size_t which) {
  Numbers block;
  block.reserve(rows.size() * columns.size());
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    for (std::size_t column = columns.begin; column < columns.end; ++column) {
      block.push_back(element(row, column, which));
    }
  }
  return block;
}

/// result += left * right; `left` has `depth` columns, `right` as many rows.
void multiply(const Numbers& left, const Numbers& right, std::size_t depth, std::size_t columns,
              Numbers& result) {
  if (depth == 0 || columns == 0) return;
  const std::size_t rows = left.size() / depth;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t k = 0; k < depth; ++k) {
      const double factor = left[row * depth + k];
      for (std::size_t column = 0; column < columns; ++column) {
        result[row * columns + column] += factor * right[k * columns + column];
      }
    }
  }
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The grid is as square as the number of ranks allows.
int grid_rows(int ranks) {
  int rows = 1;
  for (int divisor = 1; divisor * divisor <= ranks; ++divisor) {
    if (ranks % divisor == 0) rows = divisor;
  }
  return rows;
}

class Grid {
 public:
  Grid(Communicator& world, int rows)
      : row_count_(rows),
        column_count_(world.size() / rows),
        row_(*world.split(world.rank() / column_count_, world.rank())),
        column_(*world.split(world.rank() % column_count_, world.rank())) {}

  Range rows(std::size_t size) const { return {size, column_.rank(), row_count_}; }
  Range columns(std::size_t size) const { return {size, row_.rank(), column_count_}; }

  /// My block of the product of two square matrices.
  Numbers multiply_all(std::size_t size, std::size_t panel, const std::string& algorithm) {
    allrail::CallOptions options;
    options.algorithm = algorithm == "auto" ? "" : algorithm;
    const Range my_rows = rows(size);
    const Range my_columns = columns(size);
    const Numbers left = make_block(my_rows, my_columns, 1);
    const Numbers right = make_block(my_rows, my_columns, 2);
    Numbers result(my_rows.size() * my_columns.size());
    int left_owner = 0;   // in the row: who has column `begin` of the left matrix
    int right_owner = 0;  // in the column: who has row `begin` of the right one
    for (std::size_t begin = 0; begin < size;) {
      while (Range(size, left_owner, column_count_).end <= begin) ++left_owner;
      while (Range(size, right_owner, row_count_).end <= begin) ++right_owner;
      const std::size_t end = std::min({begin + panel, Range(size, left_owner, column_count_).end,
                                        Range(size, right_owner, row_count_).end});
      Numbers left_part(my_rows.size() * (end - begin));
      if (row_.rank() == left_owner) {
        for (std::size_t row = 0; row < my_rows.size(); ++row) {
          for (std::size_t k = begin; k < end; ++k) {
            left_part[row * (end - begin) + k - begin] =
                left[row * my_columns.size() + k - my_columns.begin];
          }
        }
      }
      Numbers right_part((end - begin) * my_columns.size());
      if (column_.rank() == right_owner) {
        const std::size_t from = (begin - my_rows.begin) * my_columns.size();
        std::copy_n(right.begin() + static_cast<std::ptrdiff_t>(from), right_part.size(),
                    right_part.begin());
      }
      const auto call = std::chrono::steady_clock::now();
      row_.broadcast(left_part, left_owner, options);
      column_.broadcast(right_part, right_owner, options);
      communication_s_ += seconds_since(call);
      multiply(left_part, right_part, end - begin, my_columns.size(), result);
      begin = end;
    }
    return result;
  }

  /// Of the last product, and before.
  double communication_s() const { return communication_s_; }
  std::string text() const {
    return std::to_string(row_count_) + " x " + std::to_string(column_count_);
  }

 private:
  int row_count_, column_count_;
  Communicator row_, column_;
  double communication_s_ = 0;
};

Numbers multiply_alone(std::size_t size) {
  const Range all(size, 0, 1);
  Numbers result(size * size);
  multiply(make_block(all, all, 1), make_block(all, all, 2), size, size, result);
  return result;
}

bool is_block_of(const Numbers& whole, std::size_t size, const Range& rows, const Range& columns,
                 const Numbers& block) {
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto mine = block.begin() + static_cast<std::ptrdiff_t>(row * columns.size());
    const auto other =
        whole.begin() + static_cast<std::ptrdiff_t>((rows.begin + row) * size + columns.begin);
    if (!std::equal(mine, mine + static_cast<std::ptrdiff_t>(columns.size()), other)) return false;
  }
  return true;
}

int run(const std::map<std::string, std::string>& words) {
  const std::size_t size = std::stoul(words.at("--size"));
  const std::size_t panel = std::max<std::size_t>(1, std::stoul(words.at("--panel")));
  Communicator world = Communicator::world();
  const int wanted_rows = std::stoi(words.at("--rows"));
  const int rows = wanted_rows > 0 ? wanted_rows : grid_rows(world.size());
  if (world.size() % rows != 0) {
    std::cerr << "matmul: " << world.size() << " ranks make no grid of " << rows << " rows\n";
    return 2;
  }
  Grid grid(world, rows);
  const Numbers expected = multiply_alone(size);
  std::istringstream algorithms(words.at("--algorithm"));
  double before_s = 0;
  for (std::string algorithm; std::getline(algorithms, algorithm, ',');) {
    world.barrier();
    const auto begin = std::chrono::steady_clock::now();
    const Numbers block = grid.multiply_all(size, panel, algorithm);
    const std::array<double, 2> times{grid.communication_s() - before_s, seconds_since(begin)};
    before_s = grid.communication_s();
    std::vector<std::array<double, 2>> of_ranks(static_cast<std::size_t>(world.size()));
    world.allgather(std::vector{times}, of_ranks);
    const auto slowest = std::ranges::max(of_ranks);
    const bool is_right = is_block_of(expected, size, grid.rows(size), grid.columns(size), block);
    if (!is_right || world.rank() == 0) {
      std::ostringstream line;
      line << "matmul: size " << size << " on a grid of " << grid.text() << " ranks, "
           << world.node_count() << " nodes, " << algorithm << ": " << 1e3 * slowest[0]
           << " ms of communication in " << 1e3 * slowest[1] << " ms; "
           << (is_right ? "equal to" : "DIFFERENT from") << " a run on one processor\n";
      std::cout << line.str() << std::flush;
    }
    if (!is_right) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> words{
      {"--size", "300"}, {"--panel", "64"}, {"--rows", "0"}, {"--algorithm", "auto"}};
  for (int at = 1; at < argc; at += 2) {
    if (!words.contains(argv[at]) || at + 1 == argc) {
      std::cerr << "usage: matmul [--size N] [--panel N] [--rows N] [--algorithm NAME[,NAME...]]\n";
      return 2;
    }
    words[argv[at]] = argv[at + 1];
  }
  try {
    return run(words);
  } catch (const std::exception& error) {
    std::cerr << "matmul failed: " << error.what() << '\n';
    return 1;
  }
}
