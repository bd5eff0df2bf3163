// Allrail: collective communication at the verbs level, without MPI. Includes everything.
#pragma once

#include <allrail/buffer.hpp>
#include <allrail/communicator.hpp>
#include <allrail/error.hpp>
#include <allrail/node_buffer.hpp>
#include <allrail/options.hpp>
#include <allrail/plan.hpp>
