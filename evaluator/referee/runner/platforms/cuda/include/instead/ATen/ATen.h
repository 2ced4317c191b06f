// As torch/extension.h here.
#pragma once
#include <torch/extension.h>
