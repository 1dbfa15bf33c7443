// Compiled for one shape: WIDTH, HEADS of queries, FFN, POSITIONAL (an input depends on its position too), ANSWERS,
// PROMPT_TOKENS.
#include "kernel_body.h"
#include "kernel_library.h"
