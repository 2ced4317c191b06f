// As torch_on_hip.h here.
#pragma once
#include <torch_on_hip.h>
